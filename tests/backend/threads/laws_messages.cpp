// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Messages, probes and groups.
// Covers: <tutti/testing/laws/dropped.hpp>
// Covers: <tutti/comm/at_once.hpp>
// Covers: <tutti/comm/dropped.hpp>
// Covers: <tutti/backend/threads/mail.hpp>

#include "backend/threads/harness.hpp"

#include <tutti/testing/laws/dropped.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace tutti;
using test::on_ranks;

TEMPLATE_TEST_CASE("Threads sends and receives", "", std::byte, bool, std::int16_t, float) {
  on_ranks([](auto& comm, laws::Report& report) { laws::messages<TestType>(comm, report); });
}

TEST_CASE("Threads matches messages by source, tag and order") {
  on_ranks([](auto& comm, laws::Report& report) { laws::matching(comm, report); });
}

TEST_CASE("Threads keeps what a rank has not looked for, of all sizes and in order") {
  on_ranks([](auto& comm, laws::Report& report) {
    constexpr int messages = 120;
    // Within a slot, with nothing in it, with all of it, one byte more, copied, and lent.
    constexpr std::int64_t sizes[] = {4, 0, 4120, 4121, 4096, 4097, 20000};
    auto const size = [&](int k) { return sizes[k % 7]; };
    std::vector<std::vector<std::byte>> sent;
    std::vector<Request<TensorView<std::byte const>>> lent;
    for (int k = 0; k < messages; ++k) {
      sent.emplace_back(static_cast<std::size_t>(size(k)), static_cast<std::byte>(k + comm.rank()));
      if (size(k) > 4096) lent.push_back(comm.send_async(sent.back(), 0, k));
      else comm.send(sent.back(), 0, k);
    }
    comm.barrier();
    if (comm.rank() == 0) {
      std::vector<int> next(static_cast<std::size_t>(comm.size()));
      bool in_order = true, right = true;
      for (int i = 0; i < messages * comm.size(); ++i) {
        MessageInfo const info = comm.probe();
        int& expected = next[static_cast<std::size_t>(info.source)];
        in_order = in_order && info.tag == expected;
        auto const got = comm.template recv<std::byte>(info.source);
        right = right && got.size() == size(expected);
        for (std::int64_t j = 0; j < got.size(); ++j)
          right = right && got(j) == static_cast<std::byte>(expected + info.source);
        ++expected;
      }
      report.expect(in_order, "messages of one source are received in the order in which they were sent");
      report.expect(right, "every message has the size and the contents that were sent");
    }
    report.expect(!comm.try_probe(), "no message is left, and none has come to another rank");
    comm.barrier();
    for (auto& one : lent) one.wait();
  });
}

TEST_CASE("Threads passes messages at once and later in any mixture") {
  on_ranks([](auto& comm, laws::Report& report) { laws::blocking_messages(comm, report); });
}

TEST_CASE("Threads leaves a buffer alone whose receive was dropped") {
  on_ranks([](auto& comm, laws::Report& report) { laws::dropped_receives(comm, report); });
}

TEST_CASE("Threads barriers order messages") {
  on_ranks([](auto& comm, laws::Report& report) { laws::barriers(comm, report); });
}

TEST_CASE("Threads splits into groups") {
  on_ranks([](auto& comm, laws::Report& report) { laws::groups(comm, report); });
}
