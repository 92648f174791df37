// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains a model with others, as a shepherd says. It may come and go, and its shepherd too.
//   tutti_worker --connect 127.0.0.1:8080 --data build/data/jargon
// Compiled as tutti_worker_iree it has --device iree:...

#include <tutti/federate/rpc/model_worker.hpp>
#if TUTTI_WITH_IREE
#include <tutti/train/iree/machine.hpp>
#endif

#include <cstdio>

int main(int argc, char** argv) {
  try {
    auto const parsed = tutti::federate::parse_worker(argc, argv);
    if (parsed.leave) {
      std::fputs(parsed.text.c_str(), parsed.code == 0 ? stdout : stderr);
      return parsed.code;
    }
    using tutti::train::DeviceName;
    [[maybe_unused]] auto const& device = parsed.command.train.device;
#if TUTTI_WITH_IREE
    if (device == DeviceName::iree) return tutti::federate::run_model_worker<tutti::Iree>(parsed.command), 0;
#endif
    if (device != DeviceName::cpu)
      throw tutti::Error(tutti::ErrorKind::unavailable, "tutti_worker",
                         "--device " + device.text() + ": this program was built without it. " +
                             (device == DeviceName::iree
                                  ? "Use tutti_worker_iree, which ./tutti train --worker builds for such devices"
                                  : "A GPU works under --device iree:cuda, or iree:rocm:gfx942"));
    tutti::federate::run_model_worker(parsed.command);
    return 0;
  } catch (tutti::Error const& error) {
    std::fprintf(stderr, "tutti_worker: %s%s%s\n", error.message().c_str(), error.native().empty() ? "" : ": ",
                 error.native().c_str());
    return error.kind() == tutti::ErrorKind::configuration ? 2 : 1;
  }
}
