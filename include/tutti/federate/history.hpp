// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd writes down of a run, and what can be told from it: who has which samples, and which outer steps
/// were done. Replaying it is the proof that no sample was lost or learned from twice.

#include <tutti/core/error.hpp>
#include <tutti/federate/ledger.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tutti::federate {

/// A shepherd begins, for the first time or again. Leases of `incarnation` have numbers above incarnation << 32, so
/// none that a crash has kept from the log is ever given twice.
struct Started {
  std::uint64_t run = 0, incarnation = 0;
  std::int64_t samples = 0, parameters = 0, batch = 0;
};
struct Leased {
  std::uint64_t lease = 0, worker = 0;
  std::int64_t round = 0;
  std::vector<Range> ranges;
};
struct Returned {
  std::uint64_t lease = 0;
  std::string reason;
};
/// A contribution that is part of an outer step.
struct Merged {
  std::uint64_t lease = 0;
  std::int64_t samples = 0;  ///< the first so many of the lease, which are committed with this
  std::int64_t round = 0;    ///< that it began from: an earlier one than the step's for a late contribution
  double weight = 0;         ///< tokens, less what its lateness costs
};
/// An outer step is done, all of it, with this record: its parameters are in the snapshot of `round` + 1.
struct Closed {
  std::int64_t round = 0;
  std::uint64_t checksum = 0;  ///< of the snapshot's parameters and momentum
  double loss = 0;
  std::vector<Merged> merged;
};

using Record = std::variant<Started, Leased, Returned, Closed>;

/// What a log tells. Errors of `add`: format, for a record that does not follow from those before.
class History {
 public:
  History() = default;
  /// Of a relay, which keeps no log: as if `former` had been there before. Its incarnation is to be a random one, so
  /// that no other shepherd that a worker may turn to gives leases of the same numbers.
  explicit History(Started const& former) : begun_(former) {}

  bool begun() const noexcept { return begun_.incarnation > 0; }
  Started const& begun_with() const noexcept { return begun_; }  ///< the latest
  bool worked() const noexcept { return worked_; }               ///< whether anything was ever leased
  Ledger const& ledger() const noexcept { return ledger_; }
  std::int64_t round() const noexcept { return round_; }         ///< outer steps done
  std::uint64_t checksum() const noexcept { return checksum_; }  ///< of the snapshot after them; 0 before the first

  /// The worker of a lease begins from newer parameters; its contribution will say so.
  void rebase(std::uint64_t lease, std::int64_t round) { ledger_.rebase(lease, round); }
  /// Of a shepherd that has its samples from another one: from now on there are these, and nothing is leased of them.
  void lend(std::vector<Range> const& ranges) {
    ledger_ = Ledger(ranges);
    ++round_;
  }
  void add(Record const& record) {
    try {
      std::visit([&](auto const& one) { apply(one); }, record);
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::internal) throw;
      refuse(error.message());
    }
  }

 private:
  [[noreturn]] static void refuse(std::string const& what) {
    throw Error(ErrorKind::format, "federate::History", "the log contradicts itself: " + what);
  }
  void require_begun() const {
    if (!begun()) refuse("it does not begin with the start of a shepherd");
  }
  void apply(Started const& one) {
    if (one.samples < 1 || one.incarnation != begun_.incarnation + 1) refuse("a start has no place in it");
    if (!begun()) ledger_ = Ledger(one.samples);
    else if (one.run != begun_.run || one.samples != begun_.samples || one.parameters != begun_.parameters ||
             one.batch != begun_.batch)
      refuse("it is of two runs");
    begun_ = one;
  }
  void apply(Leased const& one) {
    require_begun();
    if (one.lease >> 32 != begun_.incarnation) refuse("a lease is not of its shepherd");
    worked_ = true;
    ledger_.lease({one.lease, one.worker, one.round, one.ranges});
  }
  void apply(Returned const& one) {
    require_begun();
    ledger_.release(one.lease);
  }
  void apply(Closed const& one) {
    require_begun();
    if (one.round != round_) refuse("outer step " + std::to_string(one.round) + " follows " + std::to_string(round_));
    if (one.merged.empty()) refuse("an outer step of no contributions");
    for (Merged const& merged : one.merged) {
      if (merged.round > one.round || merged.round < 0) refuse("a contribution is of a later round");
      ledger_.commit(merged.lease, merged.samples);
    }
    ++round_;
    checksum_ = one.checksum;
  }

  Started begun_;
  bool worked_ = false;
  Ledger ledger_{0};
  std::int64_t round_ = 0;
  std::uint64_t checksum_ = 0;
};

}  // namespace tutti::federate
