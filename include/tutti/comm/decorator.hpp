// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What backends that wrap another one have in common: all that they pass on unchanged, capabilities included.

#include <tutti/comm/capabilities.hpp>
#include <tutti/comm/communicator.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/heap.hpp>
#include <tutti/core/list.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tutti {
namespace comm {

/// Base of a backend around `B`. What derives from it has an Operation of its own around B's, and so defines what takes
/// or gives one: start, start_comparison, start_send, start_recv, test, received, abandon, awaiting; and split.
template <Backend B>
class Decorator {
  static constexpr bool provides_always = requires { B::provides(Kind{}, DType{}, Operator{}); };

 public:
  using Device = typename B::Device;
  using Match = typename B::Match;

  B& inner() noexcept { return inner_; }
  B const& inner() const noexcept { return inner_; }

  int rank() const noexcept { return inner_.rank(); }
  int size() const noexcept { return inner_.size(); }
  int node() const noexcept { return inner_.node(); }
  int local_rank() const noexcept { return inner_.local_rank(); }
  int local_size() const noexcept { return inner_.local_size(); }
  exec::WaitPolicy wait_policy() const noexcept { return inner_.wait_policy(); }

  static constexpr bool provides(Kind kind, DType dtype, Operator op)
    requires provides_always
  {
    return B::provides(kind, dtype, op);
  }
  bool provides(Kind kind, DType dtype, Operator op) const
    requires(!provides_always)
  {
    return inner_.provides(kind, dtype, op);
  }
  bool takes(Collective const& call) const
    requires TakesCalls<B>
  {
    return inner_.takes(call);
  }
  bool scatters_in_place() const { return inner_.scatters_in_place(); }

  bool try_match(int from, int tag, Match& match, MessageInfo& info) {
    return inner_.try_match(from, tag, match, info);
  }
  void revoke(ErrorKind kind, std::string text) noexcept { inner_.revoke(kind, std::move(text)); }
  Visit visit(char const* operation, std::source_location where)
    requires GuardsThreads<B>
  {
    return inner_.visit(operation, where);
  }
  Visit visit() noexcept
    requires GuardsThreads<B>
  {
    return inner_.visit();
  }
  bool may_call() const noexcept
    requires GuardsThreads<B>
  {
    return inner_.may_call();
  }
  auto thread_level() const noexcept
    requires GuardsThreads<B>
  {
    return inner_.thread_level();
  }
  void check_alive(char const* operation)
    requires AnnouncesFailure<B>
  {
    inner_.check_alive(operation);
  }

  bool compares() const noexcept
    requires ComparesCalls<B>
  {
    return inner_.compares();
  }
  std::int64_t copied_bytes(bool native) const noexcept
    requires CopiesBorrowed<B>
  {
    return inner_.copied_bytes(native);
  }
  bool scatters_to_front(Collective const& call) const noexcept requires ScattersToFront<B> {
    return inner_.scatters_to_front(call);
  }
  std::int64_t staging_bytes() const noexcept
    requires SetsStaging<B>
  {
    return inner_.staging_bytes();
  }
  void strand(std::string const& failed, std::string const& why) noexcept
    requires StrandsMemory<B>
  {
    inner_.strand(failed, why);
  }
  void check_can_split(std::source_location where) const
    requires ChecksSplits<B>
  {
    inner_.check_can_split(where);
  }
  std::int64_t label_bytes() const noexcept
    requires LabelsMessages<B>
  {
    return inner_.label_bytes();
  }
  CheckLevel check_level() const noexcept
    requires SetsCheckLevel<B>
  {
    return inner_.check_level();
  }
  void announce(std::string const& text, std::uint64_t collectives) noexcept
    requires AnnouncesPlaces<B>
  {
    inner_.announce(text, collectives);
  }
  void announce_elsewhere(std::string const& text) noexcept
    requires AnnouncesElsewhere<B>
  {
    inner_.announce_elsewhere(text);
  }
  void announce_to_all(std::string const& text) noexcept
    requires AnnouncesToAll<B>
  {
    inner_.announce_to_all(text);
  }
  std::string roll_call(std::uint64_t number) const
    requires CallsRolls<B>
  {
    return inner_.roll_call(number);
  }
  bool cancel(typename B::Operation& operation) noexcept
    requires CancelsReceives<B>
  {
    return inner_.cancel(operation);
  }
  void withdraw(typename B::Operation& operation) noexcept
    requires WithdrawsSends<B>
  {
    inner_.withdraw(operation);
  }
  auto* sleeper() noexcept requires WakesSleepers<B> { return inner_.sleeper(); }
  void waits(bool begins) noexcept
    requires HearsOfWaits<B>
  {
    inner_.waits(begins);
  }
  std::string whereabouts(int rank) const
    requires KnowsWhereabouts<B>
  {
    return inner_.whereabouts(rank);
  }
  List<MessageInfo> unreceived() const
    requires ListsUnreceived<B>
  {
    return inner_.unreceived();
  }
  void count_notices(WireTraffic* notices) noexcept
    requires CountsNotices<B>
  {
    inner_.count_notices(notices);
  }
  Storage<Device> allocate(std::size_t bytes)
    requires Allocates<B>
  {
    return inner_.allocate(bytes);
  }
  Storage<Device> share(std::size_t bytes, std::uint64_t& handle)
    requires SharesBlocks<B>
  {
    return inner_.share(bytes, handle);
  }
  Storage<Device> adopt(std::uint64_t handle, std::size_t bytes)
    requires SharesBlocks<B>
  {
    return inner_.adopt(handle, bytes);
  }
  bool shares_memory() const noexcept
    requires Allocates<B> || SharesBlocks<B>
  {
    return inner_.shares_memory();
  }

 protected:
  explicit Decorator(B inner) : inner_(std::move(inner)) {}
  Decorator(Decorator&&) noexcept = default;
  Decorator& operator=(Decorator&&) noexcept = default;
  ~Decorator() = default;

  B inner_;
};

}  // namespace comm

/// A second communicator of the same ranks, whose operations go through a decorator:
/// `decorated<FaultInjector>(comm, plan)`. The two know nothing of each other's messages and failures.
/// Ranks      all; blocks like a split.
template <template <Backend> class D, Backend B, class... Arguments>
Communicator<D<B>> decorated(Communicator<B>& comm, Arguments&&... arguments) {
  List<int> members;
  for (int r = 0; r < comm.size(); ++r) members.push_back(r);
  return Communicator<D<B>>(
      D<B>(comm.backend().split(0, comm.rank(), members), std::forward<Arguments>(arguments)...),
      comm.core()->options());
}

}  // namespace tutti
