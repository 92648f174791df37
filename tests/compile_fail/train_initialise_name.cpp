// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: is called initialise_parameters\(config, state, seed\): rename
// Lines: 15
#include <tutti/train/initialisation.hpp>

namespace mine {
struct Config {};
#ifdef TUTTI_BAD
void initialise(Config const&, tutti::graph::State&, std::uint64_t) {}
#else
void initialise_parameters(Config const&, tutti::graph::State&, std::uint64_t) {}
#endif
}  // namespace mine

int main() {
  mine::Config config;
  tutti::graph::State state;
  tutti::train::initialise_state(config, state, 1);
}
