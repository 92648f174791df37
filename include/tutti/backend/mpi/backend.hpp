// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Mpi`: ranks are processes under an MPI library. Where all ranks of a communicator are on one node, collectives and
/// messages go through memory that they share (comm/shared); on several nodes, collectives go through that of each node
/// and the library between them, where this is faster than the library alone. Only non-blocking calls and MPI_Test are
/// used while somebody waits, because a blocking call can see neither a deadline nor that its processor is wanted by
/// another rank. Functions of more than a few lines are in backend_*.hpp.

#include <tutti/backend/mpi/agreement.hpp>
#include <tutti/backend/mpi/library_calls.hpp>
#include <tutti/backend/mpi/library_messages.hpp>
#include <tutti/backend/mpi/match.hpp>
#include <tutti/backend/mpi/config.hpp>
#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/handles.hpp>
#include <tutti/backend/mpi/hierarchy.hpp>
#include <tutti/backend/mpi/nodes.hpp>
#include <tutti/backend/mpi/notices.hpp>
#include <tutti/backend/mpi/processors.hpp>
#include <tutti/backend/mpi/node_memory.hpp>
#include <tutti/backend/mpi/thread_guard.hpp>
#include <tutti/comm/capabilities.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/factory.hpp>
#include <tutti/comm/launch.hpp>
#include <tutti/comm/shared/engine.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/shared.hpp>

#include <mpi.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

class Mpi {
 public:
  using Device = Cpu;

  class Operation {
   public:
    Operation() = default;
    Operation(Operation&& other) noexcept
        : call_(std::exchange(other.call_, nullptr)),
          transfer_(std::exchange(other.transfer_, nullptr)),
          between_nodes_(std::exchange(other.between_nodes_, nullptr)),
          library_(std::exchange(other.library_, nullptr)),
          info_(other.info_),
          exposed_(other.exposed_) {}
    Operation& operator=(Operation&& other) noexcept {
      std::swap(call_, other.call_);
      std::swap(transfer_, other.transfer_);
      std::swap(between_nodes_, other.between_nodes_);
      std::swap(library_, other.library_);
      info_ = other.info_;
      exposed_ = other.exposed_;
      return *this;
    }

   private:
    friend Mpi;
    // At most one of them.
    comm::shared::Engine::Call* call_ = nullptr;
    comm::shared::Transfer* transfer_ = nullptr;
    mpi::Hierarchy::Call* between_nodes_ = nullptr;
    mpi::LibraryOperation* library_ = nullptr;
    MessageInfo info_;      // of a receive: what came
    bool exposed_ = false;  // larger than what is copied
  };
  using Match = mpi::Match;

  /// Everything on shared memory; else movement of everything in blocks of one size, and the reductions that MPI
  /// defines on its own types, with shared memory on each node also those of 16-bit floats.
  bool provides(comm::Kind kind, DType dtype, Operator op) const noexcept {
    if (shared_ != nullptr) return true;
    if (kind > comm::Kind::all_to_all || op > Operator::callable) return false;
    if (!comm::reduces(kind)) return true;
    if (hierarchy_ && hierarchy_->reduces_narrow(kind, dtype, op)) return true;
    if (dtype == DType::byte || dtype == DType::bfloat16 || dtype == DType::float16) return false;
    bool const logical = op == Operator::logical_and || op == Operator::logical_or;
    if (dtype == DType::boolean) return logical;
    return logical || op == Operator::sum || op == Operator::prod || op == Operator::min || op == Operator::max;
  }
  bool takes(comm::Collective const& call) const noexcept {
    if (shared_ != nullptr) return shared_->engine().can(call);
    return call.compound_bytes == 0 && provides(call.kind, call.dtype, call.reduction.op);
  }
  /// MpiConfig::copy_bytes, of what is handed to the library.
  std::int64_t copied_bytes(bool native) const noexcept {
    return (native ? shared_ != nullptr : mail_ != nullptr) ? 0 : config_.copy_bytes->bytes;
  }
  std::int64_t staging_bytes() const noexcept { return config_.staging_bytes->bytes; }
  /// The library writes only while it is called; but peers may read what this rank gave it to send, and are told.
  void strand(std::string const& failed, std::string const& why) noexcept;
  void check_alive(char const* operation) {
    if ((++looks_ & 63u) == 0) look_around();
    check_revoked(operation);
  }
  void check_can_split(std::source_location where) const { mpi::Environment::check_open("split", where); }
  bool sends_first() const noexcept { return mail_ != nullptr; }
  bool scatters_to_front(comm::Collective const& call) const noexcept { return call.count <= count_limit_; }
  bool scatters_in_place() const noexcept { return shared_ || (hierarchy_ && hierarchy_->scatters_in_place()); }

  /// Duplicates `parent`, which stays the caller's. Collective over it. An Environment must be alive.
  /// Errors     configuration: see MpiConfig; ranks whose configurations do not go together. invalid_argument:
  ///            MPI_COMM_NULL, an intercommunicator, a thread that MPI does not grant. communication: MPI is not
  ///            running.
  explicit Mpi(MPI_Comm parent, MpiConfig const& config = {},
               std::source_location where = std::source_location::current())
      : config_(config.resolved()), handles_(std::make_unique<mpi::Handles>()) {
    if (!mpi::Environment::alive())
      throw Error(ErrorKind::communication, "Mpi",
                  "MPI is not running: it was not initialised yet, or finalised. Keep an mpi::Environment alive while "
                  "communicators are in use",
                  where);
    if (parent == MPI_COMM_NULL)
      throw Error(ErrorKind::invalid_argument, "Mpi",
                  "the communicator is MPI_COMM_NULL, which has no ranks. Ranks that MPI_Comm_split gave none make no "
                  "communicator",
                  where);
    mpi::Environment::check_open("Mpi", where);
    threads_.ask();
    mpi::Environment::watch();
    comm::Visit const stay = visit("Mpi", where);
    int joins_two = 0;
    mpi::check(MPI_Comm_test_inter(parent, &joins_two), "MPI_Comm_test_inter");
    if (joins_two != 0)
      throw Error(ErrorKind::invalid_argument, "Mpi",
                  "the communicator is an intercommunicator, whose two groups have no common ranks. Join them with "
                  "MPI_Intercomm_merge",
                  where);
    mpi::check(MPI_Comm_dup(parent, &handles_->user), "MPI_Comm_dup");
    mpi::check_agreement(handles_->user, config_);
    begin({});
  }
  comm::Visit visit(char const* operation, std::source_location where) const {
    return threads_.visit(operation, where, rank_);
  }
  comm::Visit visit() const noexcept { return threads_.visit(); }
  bool may_call() const noexcept { return threads_.may_call(); }
  char const* thread_level() const noexcept { return threads_.level_name(); }
  Mpi(Mpi&&) noexcept = default;
  Mpi& operator=(Mpi&&) noexcept = default;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int node() const noexcept { return node_; }
  int local_rank() const noexcept { return local_rank_; }
  int local_size() const noexcept { return local_size_; }
  /// Processors that this node's ranks have together.
  int local_processors() const noexcept { return local_processors_; }
  /// Each look at an operation costs an MPI_Test, and large messages move only while somebody looks: sleep late.
  exec::WaitPolicy wait_policy() const noexcept { return policy_; }
  auto* sleeper() noexcept { return shared_ != nullptr ? shared_->sleeper() : nullptr; }
  MpiConfig const& config() const noexcept { return config_; }
  /// MPI's own calls do not receive messages of tutti, which go through shared memory or have their element type in the
  /// tag, unless the check level is off: for those there is MPI_Comm_dup.
  MPI_Comm native() const noexcept { return handles_->user; }

  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel);
  Operation start_recv(void* to, std::int64_t bytes, DType dtype, int from, int tag, comm::Channel channel);
  Operation start_recv(Match& match, void* to, std::int64_t bytes);
  bool try_match(int from, int tag, Match& match, MessageInfo& info);

  bool send_at_once(void const* from, std::int64_t bytes, DType dtype, int to, int tag) noexcept {
    return is_open() && mail_->send_at_once(from, bytes, dtype, to, tag, comm::Channel::user);
  }
  bool receive_at_once(void* to, std::int64_t bytes, DType dtype, int from, int tag, MessageInfo& info) noexcept {
    return is_open() && mail_->receive_at_once(to, from, tag, comm::Channel::user, info, [&](auto const& slot) {
      return slot.bytes == bytes && slot.dtype == dtype;
    });
  }

  bool compares() const noexcept { return shared_ != nullptr; }
  comm::CheckLevel check_level() const noexcept { return config_.check_level; }
  /// Where ranks share memory.
  Operation start_comparison(comm::Collective const& call) {
    Operation operation;
    operation.call_ = shared_->engine().start(call, true);
    return operation;
  }
  bool run(comm::Collective const& call, int looks, Operation& rest) {
    if (shared_ != nullptr && !revoked_) return shared_->engine().run(call, looks, rest.call_);
    rest = start(call);
    return false;
  }
  Operation start(comm::Collective const& call) {
    Operation operation;
    if (shared_ != nullptr) {
      if (revoked_) check_revoked(comm::name(call.kind).data(), call.where);
      operation.call_ = shared_->engine().start(call);
      return operation;
    }
    expose(operation, call.lent, comm::name(call.kind).data(), call.where);
    if (hierarchy_ && hierarchy_->takes(call)) {
      operation.between_nodes_ = hierarchy_->start(call);
      return operation;
    }
    mpi::LibraryOperation& library = *(operation.library_ = &library_.take());
    mpi::LibraryCalls{handles_->user, rank_, size_, count_limit_}.start(call, library.request, library.requests);
    return operation;
  }

  bool test(Operation& operation);
  MessageInfo received(Operation const& operation) const noexcept { return operation.info_; }

  /// A receive can be cancelled; a send or collective under way keeps its memory, unless that is a copy.
  bool abandon(Operation& operation) noexcept;
  /// See comm/concepts.hpp.
  void withdraw(Operation& operation) noexcept {
    if (operation.transfer_ != nullptr) mail_->withdraw(*operation.transfer_);
  }
  /// See comm/concepts.hpp.
  bool cancel(Operation& operation) noexcept;
  std::string awaiting(Operation const& operation) const;

  /// "; rank 2 waits in barrier at app.cpp:12, ..."
  std::string whereabouts(int rank) const;
  void announce(std::string_view text, std::uint64_t collectives) noexcept {
    if (shared_) return shared_->engine().announce(text);
    position_ = text;
    if (notices_ && !mpi::Environment::closed()) notices_->tell_position(text, collectives);
  }
  /// Where ranks share memory: notices on a communicator that nobody looks at would pile up.
  void announce_elsewhere(std::string_view text) noexcept {
    if (shared_) shared_->engine().announce(text);
  }
  /// Through `watch_job`, unless all ranks of the job share memory.
  void announce_to_all(std::string_view text) noexcept {
    if (job_ && !mpi::Environment::closed()) job_->tell_place(text, traffic_);
  }
  /// The first, as far as the library tells.
  List<MessageInfo> unreceived() const {
    List<MessageInfo> found;
    if (mail_ != nullptr) mail_->list(found);
    library_.list(found);
    return found;
  }
  /// What a message has in front of it where calls are fully checked: its data type.
  std::int64_t label_bytes() const noexcept { return library_.label_bytes(); }
  void count_notices(comm::WireTraffic* notices) noexcept {
    traffic_ = notices;
    if (notices_) notices_->count(notices);
  }
  /// Empty where ranks share memory: then `awaiting` knows better.
  std::string roll_call(std::uint64_t number) const {
    return notices_ ? notices_->roll_call(number, [this](int rank) { return place(rank); }) : std::string();
  }

  /// 64-byte aligned, of the memory that the node's ranks share; where that is full, private memory.
  Storage<Cpu> allocate(std::size_t bytes) {
    return shared_ ? shared_->allocate(bytes) : hierarchy_ ? hierarchy_->allocate(bytes) : Storage<Cpu>(Cpu{}, bytes);
  }
  bool shares_memory() const noexcept { return shared_ || hierarchy_; }
  /// Whether the ranks, all of one node, read each other's ordinary memory: large blocks that are moved are copied once
  /// then, instead of twice by way of staging memory. The system may forbid it. The same on all ranks.
  bool reads_memory() const noexcept { return shared_ && shared_->engine().may_read(); }
  /// See comm::SharesBlocks. On communicators whose ranks are all on one node.
  Storage<Cpu> share(std::size_t bytes, std::uint64_t& handle) {
    return shared_ ? shared_->share(bytes, handle) : Storage<Cpu>();
  }
  Storage<Cpu> adopt(std::uint64_t handle, std::size_t bytes) { return shared_->adopt(handle, bytes); }

  void revoke(ErrorKind kind, std::string text) noexcept;

  /// From here on a rank that waits hears of `fail_job`, on this communicator and on those split off it. Collective.
  void watch_job();
  /// Called by a rank that has said why it ends. Fails every communicator of the ranks that share this one's memory and
  /// gives them two seconds to say so too: the launcher may kill them as soon as this one ends. False when they do not.
  /// Where some ranks share no memory with it, it tells them through `watch_job`, gives them a second to report,
  /// and is false.
  bool fail_job(std::string const& cause) noexcept;

  /// Leaves the communicator, so that ranks which still wait for this one learn it, and returns the largest code of all
  /// ranks that is not 0, or 0. Waits without a deadline, because others may work for hours on their own, after an
  /// error that they caught as well; after `patience_seconds` it says once that it waits. A rank that has not noticed
  /// by then that the communicator failed ends the wait.
  /// Errors     communication, with the cause, when a rank failed meanwhile; timeout; revoked, after
  ///            Environment::close.
  int finish_job(int code, double patience_seconds);

  Mpi split(int color, int key, List<int> const&);

  static constexpr std::string_view name = "mpi";
  /// See comm/factory.hpp; defined in launch.hpp.
  static comm::BackendInfo info();
  /// See tutti::launch; defined in launch.hpp.
  template <class F>
  static int launch(int argc, char** argv, F&& f, MpiConfig const& config = {},
                    std::source_location where = std::source_location::current());

 private:
  Mpi(MpiConfig config, std::unique_ptr<mpi::Handles> handles)
      : config_(std::move(config)), handles_(std::move(handles)) {}

  /// `segment`: of the parent, whose ranks share memory on each node already.
  void begin(Shared<mpi::Segment> segment);

  // --- Messages on shared memory ---

  bool is_open() const noexcept {
    return mail_ != nullptr && !mpi::Environment::closed() && !revoked_ && !shared_->engine().broken();
  }
  void check_open(char const* operation) const {
    if (is_open()) [[likely]] return;
    mpi::Environment::check_open(operation);
    check_revoked(operation);
  }
  bool match_letter(int from, int tag, Match& match, MessageInfo& info);
  bool test_transfer(Operation& operation);
  template <class = void>
  [[gnu::noinline]] bool wait_for_transfer(Operation& operation);
  /// A message that has come through MPI, unless an earlier receive would get it.
  bool receive_natively(Operation& operation);

  /// What they sent before they left may still be on its way for a moment.
  void check_departed(char const* operation, int from, std::int64_t& since) const;
  /// Before anything is started: refuses what the process or the communicator has given up. Peers that failed have told
  /// so, which must have been heard before the library gets memory that it `may_keep` after a failure, and by a rank
  /// that comes late, for which it may be ready to go on. Who was here a moment ago looks at what it has heard so far.
  void expose(Operation& operation, bool may_keep, char const* call,
              std::source_location where = std::source_location::current());
  /// For a rank whose program has returned: throws what has failed the job.
  void check_job(std::source_location where = std::source_location::current());
  /// A rank that has neither ended nor noticed that the job's communicator failed; -1: none.
  int first_deaf() const noexcept;
  /// Where a rank says that it waits whose program has returned.
  static constexpr std::string_view returned = "launch, because its program has returned";
  /// "rank 0, 2, still at work or stuck": those that have not left, as far as they have told.
  std::string who_works() const;
  /// Where a rank waits, as far as it has told.
  std::string place(int rank) const;
  /// Lets the library move messages of other communicators on, and hears what other ranks tell.
  void look_around() noexcept;
  void fall(ErrorKind kind, std::string text) noexcept;

  bool test_library(Operation& operation);
  void check(int code, char const* call, std::source_location where = std::source_location::current()) const {
    mpi::check(code, call, where);
  }
  void check_revoked(char const* operation = "Communicator",
                     std::source_location where = std::source_location::current()) const {
    if (shared_) shared_->engine().check(operation, where);
    if (revoked_) throw Error(cause_kind_, operation, cause_, where);
  }

  MpiConfig config_;
  mpi::ThreadGuard threads_;
  std::unique_ptr<mpi::Handles> handles_;
  int rank_ = 0;
  int size_ = 1;
  int node_ = 0;
  int local_rank_ = 0;
  int local_size_ = 1;
  int local_processors_ = 1;
  bool crowded_ = false;  // its node, as far as this communicator and those that it comes from know
  exec::WaitPolicy policy_;
  unsigned looks_ = 0;
  std::unique_ptr<mpi::NodeMemory> shared_;
  mpi::NodeMemory::Messages* mail_ = nullptr;
  mpi::LibraryMessages library_;
  std::unique_ptr<mpi::Hierarchy> hierarchy_;
  std::unique_ptr<mpi::Notices> notices_;
  Shared<mpi::JobNotices> job_;
  comm::WireTraffic* traffic_ = nullptr;
  std::int64_t count_limit_ = mpi::default_count_limit;
  std::int64_t started_at_ = 0;
  std::int64_t probed_alone_ = 0;  // since when, for a probe
  std::string position_;           // where this rank waits, unless the others read it in shared memory
  bool revoked_ = false;
  bool begins_job_ = false;  // this is the communicator that `launch` made
  ErrorKind cause_kind_ = ErrorKind::revoked;
  std::string cause_;
};

static_assert(Backend<Mpi> && comm::TakesCalls<Mpi> && comm::RunsAtOnce<Mpi> && comm::ComparesCalls<Mpi> &&
              comm::SetsCheckLevel<Mpi> && comm::CopiesBorrowed<Mpi> && comm::ScattersToFront<Mpi> &&
              comm::SetsStaging<Mpi> && comm::CancelsReceives<Mpi> && comm::WithdrawsSends<Mpi> &&
              comm::ListsUnreceived<Mpi> && comm::PassesAtOnce<Mpi> && comm::PrefersOrder<Mpi> &&
              comm::LabelsMessages<Mpi>);
static_assert(comm::AnnouncesPlaces<Mpi> && comm::AnnouncesElsewhere<Mpi> && comm::AnnouncesToAll<Mpi> &&
              comm::CallsRolls<Mpi> && comm::KnowsWhereabouts<Mpi> && comm::CountsNotices<Mpi> &&
              comm::AnnouncesFailure<Mpi> && comm::StrandsMemory<Mpi> && comm::ChecksSplits<Mpi> &&
              comm::GuardsThreads<Mpi> && comm::Allocates<Mpi> && comm::SharesBlocks<Mpi> && comm::WakesSleepers<Mpi>);

}  // namespace tutti

// What follows belongs to the class.
#include <tutti/backend/mpi/backend_failure.hpp>
#include <tutti/backend/mpi/backend_job.hpp>
#include <tutti/backend/mpi/backend_operations.hpp>
#include <tutti/backend/mpi/backend_start.hpp>
