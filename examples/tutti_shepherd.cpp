// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Leads workers, which train a model together over slow links, and come and go.
//   tutti_shepherd --workers 4 --data build/data/jargon --out runs/jargon
// Started again with the same words after a crash, it goes on from the last outer step.

#include <tutti/federate/rpc/model.hpp>
#include <tutti/watch/any.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  try {
    auto parsed = tutti::federate::parse_shepherd(argc, argv);
    if (parsed.leave) {
      std::fputs(parsed.text.c_str(), parsed.code == 0 ? stdout : stderr);
      return parsed.code;
    }
    tutti::federate::ModelShepherd shepherd(std::move(parsed.command));
    shepherd(tutti::watch::viewers());
    return 0;
  } catch (tutti::Error const& error) {
    std::fprintf(stderr, "tutti_shepherd: %s%s%s\n", error.message().c_str(), error.native().empty() ? "" : ": ",
                 error.native().c_str());
    return error.kind() == tutti::ErrorKind::configuration ? 2 : 1;
  }
}
