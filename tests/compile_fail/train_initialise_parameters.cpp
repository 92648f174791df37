// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: takes the model's Config, not its parameters
// Lines: 20
#include <tutti/train/initialisation.hpp>

namespace mine {
struct Config {};
struct Parameters {};
Parameters make_parameters(Config const&) { return {}; }
#ifdef TUTTI_BAD
void initialise_parameters(Parameters&, tutti::graph::State&, std::uint64_t) {}
#else
void initialise_parameters(Config const&, tutti::graph::State&, std::uint64_t) {}
#endif
}  // namespace mine

int main() {
  mine::Config config;
  tutti::graph::State state;
  tutti::train::initialise_state(config, state, 1);
}
