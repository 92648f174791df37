// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// A backend of one's own: one rank that talks to itself. A dozen functions are enough for the whole vocabulary of a
/// communicator, because what `provides` denies is derived from messages; and the library's own laws test it.
///
///     ./004_backend_of_your_own

#include <tutti/comm.hpp>

#include <tutti/testing/laws.hpp>

#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

class Loopback {
 public:
  using Device = tutti::Cpu;
  using Channel = tutti::comm::Channel;

  struct Letter {
    int tag = 0;
    Channel channel = Channel::user;
    std::vector<std::byte> bytes;
  };
  struct Receive {
    void* to = nullptr;
    std::int64_t bytes = 0;
    int tag = 0;
    Channel channel = Channel::user;
    bool done = false;
    tutti::MessageInfo info;
  };
  using Operation = std::shared_ptr<Receive>;  // sends are complete at once: the letter is a copy
  using Match = std::unique_ptr<Letter>;

  // Where this rank is.
  int rank() const { return 0; }
  int size() const { return 1; }
  int node() const { return 0; }
  int local_rank() const { return 0; }
  int local_size() const { return 1; }
  tutti::exec::WaitPolicy wait_policy() const { return {}; }

  // Messages. The first letter meets the first receive that wants it, whichever of the two comes first.
  Operation start_send(void const* from, std::int64_t bytes, tutti::DType, int, int tag, Channel channel) {
    auto const* const first = static_cast<std::byte const*>(from);
    Letter letter{tag, channel, std::vector<std::byte>(first, first + bytes)};
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (!wants(*waiting_[i], letter)) continue;
      deliver(letter, *waiting_[i]);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      return {};
    }
    letters_.push_back(std::move(letter));
    return {};
  }
  Operation start_recv(void* to, std::int64_t bytes, tutti::DType, int, int tag, Channel channel) {
    auto receive = std::make_shared<Receive>(Receive{to, bytes, tag, channel, false, {}});
    if (Match letter = take(*receive)) deliver(*letter, *receive);
    else waiting_.push_back(receive);
    return receive;
  }
  bool try_match(int, int tag, Match& match, tutti::MessageInfo& info) {
    match = take(Receive{nullptr, 0, tag, Channel::user, false, {}});
    if (match) info = {0, match->tag, static_cast<std::int64_t>(match->bytes.size())};
    return match != nullptr;
  }
  Operation start_recv(Match& match, void* to, std::int64_t bytes) {
    auto receive = std::make_shared<Receive>(Receive{to, bytes, match->tag, Channel::user, false, {}});
    deliver(*match, *receive);
    return receive;
  }

  // Operations in flight.
  bool test(Operation& operation) {
    if (operation == nullptr || operation->done) return true;
    if (!cause_.empty()) throw tutti::Error(kind_, "test", cause_);
    return false;
  }
  tutti::MessageInfo received(Operation const& operation) const { return operation->info; }
  bool abandon(Operation& operation) noexcept {
    std::erase(waiting_, operation);
    operation = nullptr;
    return true;
  }
  std::string awaiting(Operation const& operation) const {
    return operation == nullptr || operation->done ? "" : tutti::comm::no_message({0, operation->tag, 0});
  }
  void revoke(tutti::ErrorKind kind, std::string text) noexcept {
    if (!cause_.empty()) return;
    kind_ = kind;
    cause_ = std::move(text);
  }
  Loopback split(int, int, tutti::List<int> const&) { return {}; }

  // Collectives: none of its own, so that none is ever started here.
  static constexpr bool provides(tutti::comm::Kind, tutti::DType, tutti::Operator) { return false; }
  static constexpr bool scatters_in_place() { return true; }
  Operation start(tutti::comm::Collective const& call) {
    throw tutti::Error(tutti::ErrorKind::internal, "Loopback", "asked for " + tutti::comm::describe(call));
  }

 private:
  static bool wants(Receive const& receive, Letter const& letter) {
    return receive.channel == letter.channel && (receive.tag == tutti::any_tag || receive.tag == letter.tag);
  }
  static void deliver(Letter const& letter, Receive& receive) {
    auto const bytes = static_cast<std::int64_t>(letter.bytes.size());
    auto const copied = static_cast<std::size_t>(bytes < receive.bytes ? bytes : receive.bytes);
    if (copied != 0) std::memcpy(receive.to, letter.bytes.data(), copied);
    receive.info = {0, letter.tag, bytes};  // a message of another size is the communicator's to report
    receive.done = true;
  }
  Match take(Receive const& receive) {
    for (std::size_t i = 0; i < letters_.size(); ++i) {
      if (!wants(receive, letters_[i])) continue;
      auto letter = std::make_unique<Letter>(std::move(letters_[i]));
      letters_.erase(letters_.begin() + static_cast<std::ptrdiff_t>(i));
      return letter;
    }
    return nullptr;
  }

  std::deque<Letter> letters_;
  std::deque<Operation> waiting_;
  tutti::ErrorKind kind_ = tutti::ErrorKind::revoked;
  std::string cause_;
};

static_assert(tutti::Backend<Loopback>);

int main() {
  tutti::Communicator<Loopback> comm{Loopback()};

  auto x = tutti::full<float>({3}, 2.0f);
  comm.all_reduce(x, tutti::sum);
  auto sent = comm.send_async(x, 0, 7);
  auto const y = comm.recv<float>(0, 7);
  sent.wait();
  std::printf("a message to oneself: %lld elements of %g\n", static_cast<long long>(y.size()), double(y(0)));

  tutti::laws::Report report;
  tutti::laws::conform(comm, report);
  std::printf("the laws %s\n%s", report.failures == 0 ? "hold" : "are broken", report.text.c_str());
  return report.failures == 0 ? 0 : 1;
}
