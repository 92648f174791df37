// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tensor of one device is not one of another.
// Expect: (Far|no known conversion|could not convert)
// Lines: 15
#include <tutti/tensor/tensor.hpp>

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

std::int64_t count(tutti::TensorView<float const> values) { return values.size(); }

int main() {
  tutti::Tensor<float, Far> far({0});
  tutti::Tensor<float> here({0});
#ifdef TUTTI_BAD
  return count(far) == 0 ? 0 : 1;
#endif
  return count(here) == far.size() ? 0 : 1;
}
