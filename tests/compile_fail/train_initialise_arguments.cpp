// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expect: this one takes other arguments
// Lines: 15
#include <tutti/train/initialisation.hpp>

namespace mine {
struct Config {};
#ifdef TUTTI_BAD
void initialise_parameters(tutti::graph::State&, Config const&, std::uint64_t) {}
#else
void initialise_parameters(Config const&, tutti::graph::State&, std::uint64_t) {}
#endif
}  // namespace mine

int main() {
  mine::Config config;
  tutti::graph::State state;
  tutti::train::initialise_state(config, state, 1);
}
