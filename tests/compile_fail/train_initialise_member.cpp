// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: initialised by a free function initialise_parameters\(config, state, seed\)
// Lines: 22
#include <tutti/train/initialisation.hpp>

namespace mine {
struct Config {};
struct Loss {
#ifdef TUTTI_BAD
  template <class State>
  void initialize(Config const&, State&, std::uint64_t) {}
};
#else
};
void initialise_parameters(Config const&, tutti::graph::State&, std::uint64_t) {}
#endif
}  // namespace mine

int main() {
  mine::Config config;
  tutti::graph::State state;
  tutti::train::initialise_state<mine::Loss>(config, state, 1);
}
