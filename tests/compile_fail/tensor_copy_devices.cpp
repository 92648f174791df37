// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copy between devices says so by its name.
// Expect: copies between devices are named: copy_to_host, copy_from_host, to_host, to_device
// Lines: 15
#include <tutti/tensor/copy.hpp>

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
  tutti::Tensor<float> here({0});
  tutti::copy_to_host(far, here);
#ifdef TUTTI_BAD
  tutti::copy(far, here);
#endif
  return here.size() == 0 ? 0 : 1;
}
