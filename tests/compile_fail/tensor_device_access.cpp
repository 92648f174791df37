// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host cannot touch elements of a device whose memory it cannot reach.
// Expect: copy the tensor with to_host
// Lines: 15
#include <tutti/comm.hpp>

struct Far {
  static constexpr std::string_view name = "far";
  static constexpr bool host_accessible = false;
  void* allocate(std::size_t) const { return nullptr; }
  void deallocate(void*, std::size_t) const {}
  void copy_within(void*, void const*, std::size_t) const {}
  void copy_from_host(void*, void const*, std::size_t) const {}
  void copy_to_host(void*, void const*, std::size_t) const {}
  friend bool operator==(Far, Far) = default;
};

int main() {
  tutti::Tensor<float, Far> far({0});
#ifdef TUTTI_BAD
  far(0) = 1;
#endif
  return far.size() == 0 ? 0 : 1;
}
