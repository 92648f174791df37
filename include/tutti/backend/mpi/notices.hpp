// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What ranks that share no memory tell each other when something takes long or has failed: where they wait, and why
/// the communicator was revoked. Nothing is sent while nobody waits long.

#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/error.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/mutex.hpp>
#include <tutti/core/owner.hpp>
#include <tutti/exec/wait.hpp>

#include <mpi.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::mpi {

class Notices {
 public:
  /// Beyond the tags of derived collectives.
  static constexpr int tag = 32767;

  Notices(MPI_Comm comm, int rank, int size)
      : comm_(comm), rank_(rank), heard_(static_cast<std::size_t>(size)) {}
  Notices(Notices const&) = delete;
  Notices& operator=(Notices const&) = delete;
  ~Notices() {
    for (auto& sent : sent_)
      if (int done = 0;
          Environment::closed() || MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0)
        static_cast<void>(sent.release());  // the library may still read it
  }

  /// Before the communicator is freed: what came while nobody looked would stay unmatched until MPI ends.
  static void drain(MPI_Comm comm) noexcept {
    Notice notice;
    MPI_Status status;
    for (int flag = 1; MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &flag, &status) == MPI_SUCCESS && flag != 0;)
      if (MPI_Recv(&notice, sizeof notice, MPI_BYTE, status.MPI_SOURCE, tag, comm, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return;
  }

  /// Where to add what is sent and received; it outlives this.
  void count(tutti::comm::WireTraffic* traffic) noexcept { traffic_ = traffic; }
  /// `collectives`: how many this rank has called so far. An empty text says that it goes on.
  void tell_position(std::string_view text, std::uint64_t collectives) noexcept {
    tell(position, 0, text, collectives);
  }
  void tell_revoked(ErrorKind kind, std::string_view text) noexcept {
    tell(revoked, static_cast<std::uint32_t>(kind), text, 0);
  }
  /// That this rank knows of a failure, once.
  void tell_aware() noexcept {
    if (std::exchange(heard_[static_cast<std::size_t>(rank_)].aware, true)) return;
    tell(aware, 0, {}, 0);
  }

  /// Gives what was told a moment to leave.
  void flush() noexcept {
    for (std::int64_t const end = exec::now_ns() + 100'000'000; !sent_.empty() && exec::now_ns() < end;) drop_sent();
  }

  /// Takes in what has come. True when another rank has revoked the communicator: then `cause` throws it.
  bool poll() {
    while (!Environment::closed()) {
      int flag = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &flag, &status), "MPI_Iprobe");
      if (flag == 0) return cause_.type == revoked;
      Notice notice;
      check(MPI_Recv(&notice, sizeof notice, MPI_BYTE, status.MPI_SOURCE, tag, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
      if (traffic_ != nullptr) traffic_->add(0, sizeof notice);
      if (notice.type == revoked && cause_.type != revoked) cause_ = notice;
      Heard& heard = heard_[static_cast<std::size_t>(status.MPI_SOURCE)];
      if (notice.type == position) heard.position = notice;
      if (notice.type == aware) heard.aware = true;
    }
    return cause_.type == revoked;
  }
  ErrorKind cause_kind() const noexcept { return static_cast<ErrorKind>(cause_.kind); }
  std::string cause_text() const { return cause_.text; }
  bool any_aware() const noexcept {
    for (Heard const& heard : heard_)
      if (heard.aware) return true;
    return false;
  }
  /// Whether a rank has told that it knows of a failure.
  bool is_aware(int rank) const noexcept { return heard_[static_cast<std::size_t>(rank)].aware; }

  /// Who has called collective number `number` and who has not, by what the ranks have told. `where(rank)` says what is
  /// known of one that has not.
  template <class Where>
  std::string roll_call(std::uint64_t number, Where&& where) const {
    std::string here, missing;
    for (int r = 0; r < static_cast<int>(heard_.size()); ++r) {
      bool const arrived = r == rank_ || heard_[static_cast<std::size_t>(r)].position.collectives > number;
      std::string& list = arrived ? here : missing;
      list += (list.empty() ? "" : ", ") + std::to_string(r);
      if (!arrived) list += " (" + where(r) + ")";
    }
    if (missing.empty()) return "all ranks have arrived, not all have finished";
    return "ranks that have arrived: " + here + "; missing: " + missing;
  }
  /// "barrier at app.cpp:12": where a rank waits; empty when it has told of nothing, or that it goes on.
  std::string place(int rank) const { return heard_[static_cast<std::size_t>(rank)].position.text; }

 private:
  enum Type : std::uint32_t { none, position, revoked, aware };
  struct Notice {
    std::uint32_t type = none;
    std::uint32_t kind = 0;
    std::uint64_t collectives = 0;
    char text[1008] = {};
  };
  struct Heard {
    Notice position;
    bool aware = false;
  };
  struct Sent {
    Notice notice;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void drop_sent() noexcept {
    sent_.erase_if([](Owner<Sent>& sent) {
      int done = 0;
      return MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
    });
  }
  void tell(Type type, std::uint32_t kind, std::string_view text, std::uint64_t collectives) noexcept {
    drop_sent();
    for (int r = 0; r < static_cast<int>(heard_.size()); ++r) {
      if (r == rank_) continue;
      auto sent = make_owner<Sent>();
      sent->notice.type = type;
      sent->notice.kind = kind;
      sent->notice.collectives = collectives;
      std::memcpy(sent->notice.text, text.data(),
                  text.size() < sizeof sent->notice.text - 1 ? text.size() : sizeof sent->notice.text - 1);
      if (MPI_Isend(&sent->notice, sizeof(Notice), MPI_BYTE, r, tag, comm_, &sent->request) != MPI_SUCCESS) continue;
      sent_.push_back(std::move(sent));
      if (traffic_ != nullptr) traffic_->add(sizeof(Notice), 0);
    }
  }

  MPI_Comm comm_;
  int rank_;
  tutti::comm::WireTraffic* traffic_ = nullptr;
  List<Heard> heard_;
  Notice cause_;
  List<Owner<Sent>> sent_;
};

/// The way to all ranks of a job, for what each must hear whichever communicator it waits on: that a rank has failed,
/// and where those are that it waits for. Of all communicators of the job together, which several threads may use: what
/// moves is counted by the one that is named.
class JobNotices {
  using WireTraffic = tutti::comm::WireTraffic;

 public:
  /// Collective over `parent`. `tells_places`: whether some communicators have no memory in which ranks see each other.
  JobNotices(MPI_Comm parent, int rank, int size, bool tells_places)
      : comm_(duplicate(parent)), notices_(comm_, rank, size), tells_places_(tells_places) {}
  JobNotices(JobNotices const&) = delete;
  JobNotices& operator=(JobNotices const&) = delete;
  ~JobNotices() {
    if (Environment::abandoned().load() || !Environment::usable()) return;
    Notices::drain(comm_);
    MPI_Comm_free(&comm_);
  }
  MPI_Comm comm() const noexcept { return comm_; }

  /// Whoever still looks, on whichever communicator, answers those that ask who knows of a failure: nobody may take it
  /// for stuck.
  bool poll(WireTraffic* traffic) {
    Guard const guard(mutex_);
    notices_.count(traffic);
    bool const revoked = notices_.poll();
    if (notices_.any_aware()) notices_.tell_aware();
    return revoked;
  }
  /// What `poll` has found.
  ErrorKind cause_kind() const noexcept {
    Guard const guard(mutex_);
    return notices_.cause_kind();
  }
  std::string cause_text() const {
    Guard const guard(mutex_);
    return notices_.cause_text();
  }
  void tell_revoked(ErrorKind kind, std::string_view text, WireTraffic* traffic) noexcept {
    Guard const guard(mutex_);
    notices_.count(traffic);
    notices_.tell_revoked(kind, text);
  }
  /// That this rank knows that the communicator which the job began with has failed, once.
  void tell_aware(WireTraffic* traffic) noexcept {
    Guard const guard(mutex_);
    notices_.count(traffic);
    notices_.tell_aware();
    notices_.flush();  // this rank may work on for hours without a call
  }
  /// Whether a rank has told that.
  bool is_aware(int rank) const noexcept {
    Guard const guard(mutex_);
    return notices_.is_aware(rank);
  }
  /// Where this rank waits, once; an empty text when it goes on.
  void tell_place(std::string_view text, WireTraffic* traffic) {
    Guard const guard(mutex_);
    if (!tells_places_ || told_ == text) return;
    told_ = text;
    notices_.count(traffic);
    notices_.tell_position(text, 0);
  }
  /// Of a rank of another communicator.
  std::string place(MPI_Comm comm, int rank) const {
    MPI_Group group = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    int here = MPI_UNDEFINED;
    check(MPI_Comm_group(comm, &group), "MPI_Comm_group");
    check(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
    check(MPI_Group_translate_ranks(group, 1, &rank, all, &here), "MPI_Group_translate_ranks");
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    Guard const guard(mutex_);
    return here == MPI_UNDEFINED ? std::string() : notices_.place(here);
  }

 private:
  static MPI_Comm duplicate(MPI_Comm parent) {
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return comm;
  }

  MPI_Comm comm_;
  mutable Mutex mutex_;
  Notices notices_;
  bool tells_places_;
  std::string told_;
};

}  // namespace tutti::mpi
