// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Mpi`: ranks are processes under an MPI library. Where all ranks of a communicator are on one node, collectives and
/// messages go through memory that they share (comm/shared); on several nodes, collectives go through that of each node
/// and the library between them, where this is faster than the library alone. Only non-blocking calls and MPI_Test are
/// used while somebody waits, because a blocking call can see neither a deadline nor that its processor is wanted by
/// another rank. Above 400 lines: one class, whose functions pass on to its parts.

#include <tutti/backend/mpi/agreement.hpp>
#include <tutti/backend/mpi/library_calls.hpp>
#include <tutti/backend/mpi/library_messages.hpp>
#include <tutti/backend/mpi/match.hpp>
#include <tutti/backend/mpi/config.hpp>
#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/hierarchy.hpp>
#include <tutti/backend/mpi/nodes.hpp>
#include <tutti/backend/mpi/notices.hpp>
#include <tutti/backend/mpi/processors.hpp>
#include <tutti/backend/mpi/node_memory.hpp>
#include <tutti/comm/capabilities.hpp>
#include <tutti/comm/concepts.hpp>
#include <tutti/comm/factory.hpp>
#include <tutti/comm/launch.hpp>
#include <tutti/comm/shared/engine.hpp>
#include <tutti/core/concat.hpp>
#include <tutti/core/shared.hpp>

#include <mpi.h>
#include <pthread.h>

#include <atomic>
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
  /// MpiConfig::staging_bytes.
  std::int64_t staging_bytes() const noexcept { return config_.staging_bytes->bytes; }
  /// The library writes nothing while it is not called; but peers may read what this rank gave it to send, and are
  /// told.
  void strand(std::string const& failed, std::string const& why) noexcept {
    if (config_.copy_bytes->bytes == 0 || mpi::Environment::closed()) return;
    revoke(ErrorKind::communication,
           concat(failed, " and left a buffer of the caller to MPI", why.empty() ? "" : ": ", why));
    if (notices_) notices_->flush();
    mpi::Environment::close(failed);
  }
  void check_alive(char const* operation) {
    if ((++looks_ & 63u) == 0) look_around();
    check_revoked(operation);
  }
  void check_can_split(std::source_location where) const { mpi::Environment::check_open("split", where); }
  bool sends_first() const noexcept { return mail_ != nullptr; }
  bool scatters_in_place() const noexcept { return shared_ || (hierarchy_ && hierarchy_->scatters_in_place()); }

  /// Duplicates `parent`, which stays the caller's. Collective over it. An Environment must be alive.
  /// Errors     configuration: see MpiConfig; ranks whose configurations do not go together. invalid_argument:
  ///            MPI_COMM_NULL, an intercommunicator, a thread that MPI does not grant. communication: MPI is not
  ///            running.
  explicit Mpi(MPI_Comm parent, MpiConfig const& config = {},
               std::source_location where = std::source_location::current())
      : config_(config.resolved()), handles_(std::make_unique<Handles>()) {
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
    mpi::check(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
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
  /// A call of this thread, where MPI grants threads less than all: before anything is called.
  /// Errors     invalid_argument: a thread that may not call MPI, or not now. communication: MPI was finalised.
  comm::Visit visit(char const* operation, std::source_location where) const {
    if (thread_level_ == MPI_THREAD_MULTIPLE && !finalised_->load(std::memory_order_relaxed)) [[likely]] return {};
    return visit_narrowly(operation, where);
  }
  comm::Visit visit() const noexcept {
    return thread_level_ == MPI_THREAD_SERIALIZED ? comm::Visit(mpi::Environment::threads()) : comm::Visit();
  }
  /// What a thread drops that may not call is handed over to the one that may.
  bool may_call() const noexcept {
    return thread_level_ >= MPI_THREAD_SERIALIZED || ::pthread_equal(maker_, ::pthread_self()) != 0;
  }
  char const* thread_level() const noexcept {
    return thread_level_ == MPI_THREAD_MULTIPLE     ? "multiple"
           : thread_level_ == MPI_THREAD_SERIALIZED ? "serialized"
           : thread_level_ == MPI_THREAD_FUNNELED   ? "funneled"
                                                    : "single";
  }
  Mpi(Mpi&&) noexcept = default;
  Mpi& operator=(Mpi&&) noexcept = default;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int node() const noexcept { return node_; }
  int local_rank() const noexcept { return local_rank_; }
  int local_size() const noexcept { return local_size_; }
  /// Processors that this node's ranks have together.
  int local_processors() const noexcept { return local_processors_; }
  /// Each look at an operation costs an MPI_Test, and large messages move only while somebody looks: yield long, sleep
  /// late.
  exec::WaitPolicy wait_policy() const noexcept { return policy_; }
  MpiConfig const& config() const noexcept { return config_; }
  /// MPI's own calls do not receive messages of tutti, which go through shared memory or have their element type in the
  /// tag, unless the check level is off: for those there is MPI_Comm_dup.
  MPI_Comm native() const noexcept { return handles_->user; }

  Operation start_send(void const* from, std::int64_t bytes, DType dtype, int to, int tag, comm::Channel channel) {
    Operation operation;
    if (mail_ != nullptr) {
      check_open("send");
      operation.transfer_ = mail_->send(from, bytes, dtype, to, tag, channel);
      return operation;
    }
    expose(operation, bytes > config_.copy_bytes->bytes, "send");
    operation.library_ = &library_.send(from, bytes, dtype, to, tag, channel);
    return operation;
  }
  Operation start_recv(void* to, std::int64_t bytes, DType dtype, int from, int tag, comm::Channel channel) {
    Operation operation;
    if (mail_ != nullptr) {
      check_open("recv");
      operation.transfer_ = mail_->receive(to, bytes, from, tag, channel, operation.info_);
      return operation;
    }
    expose(operation, bytes > config_.copy_bytes->bytes, "recv");
    operation.library_ = &library_.receive(to, bytes, dtype, from, tag, channel);
    return operation;
  }
  Operation start_recv(Match& match, void* to, std::int64_t bytes) {
    Operation operation;
    if (match.letter) {
      check_open("recv");
      operation.transfer_ = mail_->receive(std::move(match.letter), to, bytes);
      return operation;
    }
    expose(operation, bytes > config_.copy_bytes->bytes, "recv");
    operation.library_ = &library_.receive(match, to, bytes);
    return operation;
  }
  bool try_match(int from, int tag, Match& match, MessageInfo& info) {
    check_revoked();
    mpi::Environment::check_open("probe");
    if (mail_ != nullptr && match_letter(from, tag, match, info)) return true;
    if (!library_.match(from, tag, match, info)) {
      if ((++looks_ & 63u) == 0) look_around();
      if (!shared_ || !shared_->engine().alone(from)) probed_alone_ = 0;
      else check_departed("probe", from, probed_alone_);
      return false;
    }
    probed_alone_ = 0;
    return true;
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

  bool test(Operation& operation) {
    if (operation.transfer_ != nullptr) return test_transfer(operation);
    if (operation.call_ != nullptr) {
      if (mail_ != nullptr && mail_->busy()) mail_->progress();
      if (shared_->engine().test(operation.call_)) {
        operation.call_ = nullptr;
        return true;
      }
      // Messages of other communicators move on while the library is called, and only then.
      if ((++looks_ & 63u) == 0) look_around();
      return false;
    }
    if (operation.between_nodes_ == nullptr && operation.library_ == nullptr) return true;
    mpi::Environment::check_open("test");
    if ((++looks_ & 63u) == 0) look_around();
    if (operation.between_nodes_ != nullptr) {
      if (!hierarchy_->test(operation.between_nodes_)) {
        check_revoked();
        return false;
      }
      operation.between_nodes_ = nullptr;
    } else if (!test_library(operation)) {
      return false;
    }
    // A peer that gave up and closed has told so before its program touched what it sent.
    if (operation.exposed_) {
      if (!shared_) look_around();
      check_revoked();
    }
    return true;
  }
  MessageInfo received(Operation const& operation) const noexcept { return operation.info_; }

  /// A receive can be cancelled; a send or collective under way keeps its memory, unless that is a copy.
  bool abandon(Operation& operation) noexcept {
    if (operation.call_ != nullptr) return shared_->engine().abandon(std::exchange(operation.call_, nullptr));
    if (operation.between_nodes_ != nullptr)
      return hierarchy_->abandon(std::exchange(operation.between_nodes_, nullptr));
    if (operation.transfer_ != nullptr) {
      mail_->abandon(*std::exchange(operation.transfer_, nullptr));
      return true;
    }
    if (operation.library_ == nullptr) return true;
    bool const gone = library_.abandon(*operation.library_);
    library_.put_back(*std::exchange(operation.library_, nullptr));
    return gone;
  }
  /// See comm/concepts.hpp.
  void withdraw(Operation& operation) noexcept {
    if (operation.transfer_ != nullptr) mail_->withdraw(*operation.transfer_);
  }
  /// See comm/concepts.hpp.
  bool cancel(Operation& operation) noexcept {
    if (operation.transfer_ != nullptr) {
      bool const cancelled = mail_->cancel(*operation.transfer_);
      if (cancelled) operation.transfer_ = nullptr;
      return cancelled;
    }
    return operation.library_ != nullptr && library_.cancel(*operation.library_);
  }
  std::string awaiting(Operation const& operation) const {
    if (operation.call_ != nullptr) return shared_->engine().awaiting(operation.call_);
    if (operation.between_nodes_ != nullptr) return hierarchy_->awaiting(operation.between_nodes_);
    if (auto const* const transfer = operation.transfer_) {
      if (transfer->sends)
        return comm::not_received(transfer->peer, transfer->tag) + whereabouts(transfer->peer);
      return comm::no_message({transfer->peer, transfer->tag, 0}) + whereabouts(transfer->peer);
    }
    if (operation.library_ == nullptr || !operation.library_->under_way()) return {};
    MessageInfo const& wanted = operation.library_->wanted;
    if (operation.library_->receives) return comm::no_message(wanted) + whereabouts(wanted.source);
    if (wanted.source >= 0)
      return comm::not_received(wanted.source, wanted.tag) + whereabouts(wanted.source);
    return "MPI reports it as incomplete on this rank; some rank of " + std::to_string(size_) +
           " has not made the matching call";
  }

  /// "; rank 2 waits in barrier at app.cpp:12, ..."
  std::string whereabouts(int rank) const {
    if (rank < 0) return {};
    if (shared_) return concat("; rank ", rank, " ", shared_->engine().whereabouts(rank));
    if (rank != rank_) return concat("; rank ", rank, " ", place(rank));
    return position_.empty() ? std::string() : concat("; rank ", rank, " waits in ", position_);
  }
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
  /// See comm::SharesBlocks. On communicators whose ranks are all on one node.
  Storage<Cpu> share(std::size_t bytes, std::uint64_t& handle) {
    return shared_ ? shared_->share(bytes, handle) : Storage<Cpu>();
  }
  Storage<Cpu> adopt(std::uint64_t handle, std::size_t bytes) { return shared_->adopt(handle, bytes); }

  void revoke(ErrorKind kind, std::string text) noexcept {
    if (revoked_) return;
    if (shared_) shared_->engine().board().alarm().raise(kind, text);
    else if (notices_ && !mpi::Environment::closed()) notices_->tell_revoked(kind, text);
    fall(kind, std::move(text));
  }

  /// From here on a rank that waits hears of `fail_job`, on this communicator and on those split off it. Collective.
  void watch_job() {
    if (size_ > 1) job_ = make_shared_owner<mpi::JobNotices>(handles_->internal, rank_, size_, shared_ == nullptr);
    begins_job_ = static_cast<bool>(job_);
  }
  /// Called by a rank that has said why it ends. Fails every communicator of the ranks that share this one's memory and
  /// gives them two seconds to say so too: the launcher may kill them as soon as this one ends. False when they do not.
  /// Where some ranks share no memory with it, it tells them through `watch_job`, gives them a second to report,
  /// and is false.
  bool fail_job(std::string const& cause) noexcept {
    revoke(ErrorKind::communication, cause);
    if (job_) job_->tell_revoked(ErrorKind::communication, cause, traffic_);
    if (hierarchy_) hierarchy_->segment()->alarm().raise(ErrorKind::communication, cause);
    if (!shared_) {  // the library is left alone: it may still write to buffers that the exception has freed
      timespec const moment{1, 0};
      ::nanosleep(&moment, nullptr);
      return false;
    }
    shared_->segment()->alarm().raise(ErrorKind::communication, cause);
    shared_->engine().report();
    shared_->engine().leave();
    exec::Backoff backoff(policy_);
    for (std::int64_t const end = exec::now_ns() + 2'000'000'000; exec::now_ns() < end; backoff.step())
      if (shared_->engine().board().all_reported()) return true;
    return false;
  }

  /// Leaves the communicator, so that ranks which still wait for this one learn it, and returns the largest code of all
  /// ranks that is not 0, or 0. Waits without a deadline, because others may work for hours on their own, after an
  /// error that they caught as well; after `patience_seconds` it says once that it waits. A rank that has not noticed
  /// by then that the communicator failed ends the wait.
  /// Errors     communication, with the cause, when a rank failed meanwhile; timeout; revoked, after
  ///            Environment::close.
  int finish_job(int code, double patience_seconds) {
    if (shared_) shared_->engine().leave();
    if (hierarchy_) hierarchy_->leave();
    if (!job_) return code;
    mpi::Environment::check_open("launch");  // without MPI_Finalize the launcher kills the others: no success
    static int codes[2];  // the library may write to it after a failure
    constexpr int good = std::numeric_limits<int>::min();
    codes[0] = code == 0 ? good : code;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(&codes[0], &codes[1], 1, MPI_INT, MPI_MAX, job_->comm(), &request), "MPI_Iallreduce");
    exec::Backoff backoff(policy_);
    auto const patience = static_cast<std::int64_t>(patience_seconds * 1e9);
    std::int64_t const end = exec::now_ns() + patience;
    bool told = false, warned = false;
    for (int done = 0;; backoff.step()) {
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) {
        int const agreed = codes[1] == good ? 0 : codes[1];
        mpi::Environment::agree(agreed);
        return agreed;
      }
      check_job();
      std::int64_t const now = exec::now_ns();
      if (!told && now > end - patience / 2) {
        told = true;
        job_->tell_place(returned, traffic_);
      }
      if (now < end) continue;
      if (!std::exchange(warned, true))
        comm::report(rank_, concat("has ended ", patience_seconds, " s ago and waits for ", who_works()).c_str());
      if (!revoked_) continue;
      if (int const deaf = first_deaf(); deaf >= 0)
        throw Error(ErrorKind::timeout, "launch",
                    concat("rank ", deaf, " has neither ended nor noticed within ", patience_seconds,
                           " s that the communicator failed: ", cause_));
    }
  }

  Mpi split(int color, int key, List<int> const&) {
    Mpi child(config_, std::make_unique<Handles>());
    check(MPI_Comm_split(handles_->user, color, key, &child.handles_->user), "MPI_Comm_split");
    child.job_ = job_;
    child.thread_level_ = thread_level_;
    child.begin(shared_ ? shared_->segment() : hierarchy_ ? hierarchy_->segment() : Shared<mpi::Segment>());
    return child;
  }

  static constexpr std::string_view name = "mpi";
  /// See comm/factory.hpp; defined in launch.hpp.
  static comm::BackendInfo info();
  /// See tutti::launch; defined in launch.hpp.
  template <class F>
  static int launch(int argc, char** argv, F&& f, MpiConfig const& config = {},
                    std::source_location where = std::source_location::current());

 private:
  [[gnu::noinline]] comm::Visit visit_narrowly(char const* operation, std::source_location where) const {
    if (finalised_->load()) mpi::Environment::check_open(operation, where);
    if (thread_level_ == MPI_THREAD_SERIALIZED)
      return comm::Visit(mpi::Environment::threads(), operation, where, [&](std::string const& other) {
        throw Error(ErrorKind::invalid_argument, operation,
                    concat("another thread is in ", other,
                           ", and MPI grants thread level serialized: one thread at a time, whatever the communicator. "
                           "Let the threads take turns, or ask for multiple (MpiConfig::thread_level), where threads "
                           "that have a communicator each, by duplicate(), may call at once"),
                    where)
            .with_rank(rank_);
      });
    int permitted = 1;
    if (thread_level_ < MPI_THREAD_SERIALIZED) MPI_Is_thread_main(&permitted);
    if (permitted == 0)
      throw Error(ErrorKind::invalid_argument, operation,
                  concat("MPI grants thread level ", thread_level(),
                         ": only the thread that initialised it may call, and this is another one. Call from there, or "
                         "ask for serialized or multiple (MpiConfig::thread_level); with multiple threads may call at "
                         "once that have a communicator each, by duplicate()"),
                  where)
          .with_rank(rank_);
    return {};
  }
  /// Messages of derived collectives travel on a communicator of their own, where no wildcard of a user can catch them.
  struct Handles {
    MPI_Comm user = MPI_COMM_NULL;
    MPI_Comm internal = MPI_COMM_NULL;
    bool leaked = false;
    Handles() = default;
    Handles(Handles const&) = delete;
    Handles& operator=(Handles const&) = delete;
    ~Handles() {
      if (user == MPI_COMM_NULL || leaked || !mpi::Environment::usable()) return;
      int level = MPI_THREAD_MULTIPLE, permitted = 1;
      MPI_Query_thread(&level);
      if (level < MPI_THREAD_SERIALIZED) MPI_Is_thread_main(&permitted);
      if (permitted == 0) return;  // stays until MPI ends
      if (internal != MPI_COMM_NULL) {
        mpi::Notices::drain(internal);
        MPI_Comm_free(&internal);
      }
      if (user != MPI_COMM_NULL) MPI_Comm_free(&user);
    }
  };

  Mpi(MpiConfig config, std::unique_ptr<Handles> handles) : config_(std::move(config)), handles_(std::move(handles)) {}

  /// `segment`: of the parent, whose ranks share memory on each node already.
  void begin(Shared<mpi::Segment> segment) {
    if (config_.count_limit < count_limit_) count_limit_ = config_.count_limit;
    mpi::check(MPI_Comm_set_errhandler(handles_->user, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    mpi::check(MPI_Comm_dup(handles_->user, &handles_->internal), "MPI_Comm_dup");
    mpi::check(MPI_Comm_set_errhandler(handles_->internal, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    mpi::check(MPI_Comm_rank(handles_->user, &rank_), "MPI_Comm_rank");
    mpi::check(MPI_Comm_size(handles_->user, &size_), "MPI_Comm_size");
    mpi::Nodes const nodes(handles_->internal, config_.node_ranks->count);
    node_ = nodes.own().node;
    local_rank_ = nodes.own().local_rank;
    local_size_ = nodes.local_size();
    local_processors_ = mpi::node_processors(nodes.local());
    if (config_.node_shared != mpi::Switch::off) {
      if (nodes.count() == 1) shared_ = mpi::NodeMemory::create(nodes.local(), std::move(segment), config_);
      else hierarchy_ = mpi::Hierarchy::create(handles_->internal, nodes, std::move(segment), config_);
    }
    if (!shared_ && size_ > 1) notices_ = std::make_unique<mpi::Notices>(handles_->internal, rank_, size_);
    policy_ = config_.wait->on(local_size_, local_processors_);
    if (shared_ && config_.check_level != comm::CheckLevel::off) mail_ = shared_->open_messages();
    comm::CheckLevel const level = mail_ ? comm::CheckLevel::off : check_level();
    library_ = {handles_->user, handles_->internal, count_limit_, policy_, level == comm::CheckLevel::full,
                level == comm::CheckLevel::cheap && mpi::tags_hold_types()};
  }

  // --- Messages on shared memory ---

  void check_open(char const* operation) const {
    if (!mpi::Environment::closed() && !revoked_ && !shared_->engine().broken()) [[likely]] return;
    mpi::Environment::check_open(operation);
    check_revoked(operation);
  }
  bool match_letter(int from, int tag, Match& match, MessageInfo& info) {
    match.letter = mail_->match(from, tag);
    if (!match.letter) return false;
    info = comm::shared::info_of(*match.letter);
    match.memory = shared_->segment();
    probed_alone_ = 0;
    return true;
  }
  bool test_transfer(Operation& operation) {
    comm::shared::Transfer& transfer = *operation.transfer_;
    if (!transfer.complete) mail_->progress();
    if (transfer.complete) {
      bool const of_user = !transfer.sends && transfer.channel == comm::Channel::user;
      std::int64_t const room = of_user ? transfer.bytes : std::numeric_limits<std::int64_t>::max();
      operation.transfer_ = nullptr;
      mail_->finish(transfer, operation.info_);
      if (operation.info_.bytes > room) mpi::throw_longer(operation.info_.source, operation.info_.tag, room);
      return true;
    }
    return wait_for_transfer(operation);
  }
  [[gnu::noinline]] bool wait_for_transfer(Operation& operation) {
    comm::shared::Transfer& transfer = *operation.transfer_;
    comm::shared::Engine& engine = shared_->engine();
    engine.progress();
    check_revoked();
    ++looks_;
    if ((looks_ & 63u) == 0) look_around();
    int const partner = mail_->partner(transfer);
    bool const open = !transfer.sends && transfer.parcel == nullptr;  // a receive whose message has not come
    bool const alone = engine.any_left() && (open ? engine.alone(partner) : engine.left(partner));
    // MPI's own calls send to this communicator too.
    if (open && transfer.channel == comm::Channel::user && (alone || (++transfer.looks & 255u) == 0) &&
        receive_natively(operation))
      return false;
    if (alone) check_departed(transfer.sends ? "send" : "recv", partner, transfer.alone_since);
    return false;
  }
  /// A message that has come through MPI, unless an earlier receive would get it.
  bool receive_natively(Operation& operation) {
    comm::shared::Transfer& transfer = *operation.transfer_;
    if (!mail_->is_first(transfer) || mpi::Environment::closed()) return false;
    Match match;
    int flag = 0;
    check(MPI_Improbe(transfer.peer < 0 ? MPI_ANY_SOURCE : transfer.peer, transfer.tag < 0 ? MPI_ANY_TAG : transfer.tag,
                      handles_->user, &flag, &match.message, MPI_STATUS_IGNORE),
          "MPI_Improbe");
    if (flag == 0) return false;
    void* const to = transfer.to;
    std::int64_t const bytes = transfer.bytes;
    mail_->abandon(*std::exchange(operation.transfer_, nullptr));
    operation = start_recv(match, to, bytes);
    return true;
  }

  /// What they sent before they left may still be on its way for a moment.
  void check_departed(char const* operation, int from, std::int64_t& since) const {
    std::int64_t const now = exec::now_ns();
    if (since == 0) since = now;
    if (now - since > 200'000'000)
      shared_->engine().throw_departed(operation, from, comm::messages_there(unreceived()));
  }
  /// Before anything is started: refuses what the process or the communicator has given up. Peers that failed have told
  /// so, which must have been heard before the library gets memory that it `may_keep` after a failure, and by a rank
  /// that comes late, for which it may be ready to go on. Who was here a moment ago looks at what it has heard so far.
  void expose(Operation& operation, bool may_keep, char const* call,
              std::source_location where = std::source_location::current()) {
    mpi::Environment::check_open(call, where);
    operation.exposed_ = may_keep && config_.copy_bytes->bytes != 0;
    if (!shared_) {
      std::int64_t const now = exec::now_ns();
      if (operation.exposed_ || now - started_at_ > 1'000'000) {
        for (int looks = 0; looks < 2; ++looks) look_around();  // the first may only move in what is then seen
        started_at_ = now;
      }
    }
    check_revoked(call, where);
  }
  /// For a rank whose program has returned: throws what has failed the job.
  void check_job(std::source_location where = std::source_location::current()) {
    if (shared_) shared_->segment()->alarm().check("launch", where);
    if (hierarchy_) hierarchy_->segment()->alarm().check("launch", where);
    if (job_->poll(traffic_)) throw Error(job_->cause_kind(), "launch", job_->cause_text());
  }
  /// A rank that has neither ended nor noticed that the job's communicator failed; -1: none.
  int first_deaf() const noexcept {
    for (int r = 0; r < size_; ++r)
      if (!job_->is_aware(r) && (!shared_ || shared_->engine().board().deaf(r))) return r;
    return -1;
  }
  /// Where a rank says that it waits whose program has returned.
  static constexpr std::string_view returned = "launch, because its program has returned";
  /// "rank 0, 2, still at work or stuck": those that have not left, as far as they have told.
  std::string who_works() const {
    std::string text;
    for (int r = 0; r < size_; ++r) {
      bool const ended = r == rank_ || (shared_ ? shared_->engine().board().left(r)
                                                : job_->place(handles_->user, r) == returned);
      if (!ended) text += concat(text.empty() ? "rank " : ", ", r);
    }
    return text.empty() ? "others, which have left too and not said so yet" : text + ", still at work or stuck";
  }
  /// Where a rank waits, as far as it has told.
  std::string place(int rank) const {
    std::string text = notices_->place(rank);
    if (text.empty() && job_ && !mpi::Environment::closed()) text = job_->place(handles_->user, rank);
    return text.empty() ? "does not say that it waits" : "waits in " + text;
  }
  /// Lets the library move messages of other communicators on, and hears what other ranks tell.
  void look_around() noexcept {
    if (mpi::Environment::closed()) return;
    if (job_ && !revoked_ && job_->poll(traffic_)) revoke(job_->cause_kind(), job_->cause_text());
    int flag = 0;
    if (!notices_ && !job_) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, handles_->internal, &flag, MPI_STATUS_IGNORE);
    if (notices_ && notices_->poll() && !revoked_) fall(notices_->cause_kind(), notices_->cause_text());
  }
  void fall(ErrorKind kind, std::string text) noexcept {
    // Before this rank gives its operations up, which would be all that its node learns.
    if (hierarchy_) hierarchy_->raise(kind, text);
    if (shared_) shared_->engine().hear();
    revoked_ = true;
    cause_kind_ = kind;
    cause_ = std::move(text);
    mpi::Environment::abandoned().store(true);
    handles_->leaked = true;
    if (hierarchy_) hierarchy_->leak();
    if (begins_job_ && !mpi::Environment::closed()) job_->tell_aware(traffic_);
  }

  bool test_library(Operation& operation) {
    mpi::LibraryOperation& library = *operation.library_;
    bool done = false;
    try {
      done = library_.test(library, operation.info_);
    } catch (...) {
      library_.put_back(*std::exchange(operation.library_, nullptr));
      throw;
    }
    if (done) {
      library_.put_back(*std::exchange(operation.library_, nullptr));
      return true;
    }
    check_revoked();
    bool const alone = library.receives && shared_ && shared_->engine().alone(library.wanted.source);
    if (library.typed_tag >= 0 && (alone || (++library.looks & 63u) == 0)) library_.receive_other_type(library);
    if (alone) check_departed("recv", library.wanted.source, library.alone_since);
    return false;
  }
  void check(int code, char const* call, std::source_location where = std::source_location::current()) const {
    mpi::check(code, call, where);
  }
  void check_revoked(char const* operation = "Communicator",
                     std::source_location where = std::source_location::current()) const {
    if (shared_) shared_->engine().check(operation, where);
    if (revoked_) throw Error(cause_kind_, operation, cause_, where);
  }

  MpiConfig config_;
  int thread_level_ = MPI_THREAD_MULTIPLE;
  pthread_t maker_ = ::pthread_self();  // with one thread that may call, that one: `visit` lets no other make it
  std::atomic<bool> const* finalised_ = &mpi::Environment::finalised();
  std::unique_ptr<Handles> handles_;
  int rank_ = 0;
  int size_ = 1;
  int node_ = 0;
  int local_rank_ = 0;
  int local_size_ = 1;
  int local_processors_ = 1;
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
              comm::SetsCheckLevel<Mpi> && comm::CopiesBorrowed<Mpi> && comm::SetsStaging<Mpi> &&
              comm::CancelsReceives<Mpi> && comm::WithdrawsSends<Mpi> && comm::ListsUnreceived<Mpi> &&
              comm::PrefersOrder<Mpi> && comm::LabelsMessages<Mpi>);
static_assert(comm::AnnouncesPlaces<Mpi> && comm::AnnouncesElsewhere<Mpi> && comm::AnnouncesToAll<Mpi> &&
              comm::CallsRolls<Mpi> && comm::KnowsWhereabouts<Mpi> && comm::CountsNotices<Mpi> &&
              comm::AnnouncesFailure<Mpi> && comm::StrandsMemory<Mpi> && comm::ChecksSplits<Mpi> &&
              comm::GuardsThreads<Mpi> && comm::Allocates<Mpi> && comm::SharesBlocks<Mpi>);

}  // namespace tutti
