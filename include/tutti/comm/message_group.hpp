// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `MessageGroup<Backend>`: several sends and receives under way together, and one wait for all of them.

#include <tutti/comm/endpoint.hpp>
#include <tutti/comm/message.hpp>
#include <tutti/core/list.hpp>
#include <tutti/core/owner.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace tutti {

/// Made by `Communicator::group`. Operations start when they are added, so their order never deadlocks. Buffers are
/// borrowed until `wait` returns; a tensor that is moved into `send` is owned. Dropped unfinished, the operations pass
/// to the communicator, as those of requests do. Move-only.
template <Backend B>
class MessageGroup : private comm::Endpoint<B> {
  using Base = comm::Endpoint<B>;

 public:
  using typename Base::Where;

  explicit MessageGroup(Shared<comm::Core<B>> core) : Base(std::move(core)) {}
  MessageGroup(MessageGroup&&) noexcept = default;
  MessageGroup& operator=(MessageGroup&& other) noexcept {
    if (this == &other) return *this;
    drop();
    Base::operator=(std::move(other));
    entries_ = std::move(other.entries_);
    return *this;
  }
  ~MessageGroup() { drop(); }

  template <comm::Buffer X>
  void send(X&& x, int to, int tag = 0, Where where = std::source_location::current()) {
    check_here(where);
    add(this->transfer(
            "send", [&] { return comm::input_of(std::forward<X>(x)); }, Base::nothing, {to, tag, any_source, any_tag},
            where),
        false, where);
  }
  template <comm::Buffer X>
  void recv(X&& x, int from, int tag = any_tag, Where where = std::source_location::current()) {
    static_assert(!comm::is_owned<X> && !comm::is_moved_container<X>,
                  "tutti: a group hands no buffers back. Keep the buffer in a variable and pass it by reference");
    check_here(where);
    add(this->transfer(
            "recv", Base::nothing, [&] { return comm::operand_of(std::forward<X>(x)); }, {0, 0, from, tag}, where),
        true, where);
  }

  // Calls whose arguments neither of them takes.
  template <class T = void>
  comm::NotSent<T> send(comm::Any = {}, comm::Any = {}, comm::Any = {}, comm::Any = {}, comm::Any = {}, comm::Any = {});
  template <class T = void>
  comm::NotReceived<T> recv(comm::Any = {}, comm::Any = {}, comm::Any = {}, comm::Any = {}, comm::Any = {},
                            comm::Any = {});

  /// Operations that were added and not waited for.
  std::size_t size(std::source_location where = std::source_location::current()) const {
    check_here(where);
    return entries_.size();
  }

  /// Completes all of them and returns what was received, in the order of the calls of `recv`. The group is empty
  /// afterwards and can be filled again.
  /// Blocks   within the communicator's deadline, or that of this call or of the operation (`within`).
  /// Errors   the first one of any operation; the others that are not complete are given up. One that is refused,
  ///          because another thread is in a call or this one may not make it, leaves the group as it was.
  List<MessageInfo> wait(Where where = std::source_location::current()) {
    check_here(where);
    // A call that is refused, as a second thread's is, has touched nothing.
    auto const stay = this->core_->visit("MessageGroup::wait", where);
    List<MessageInfo> received;
    try {
      // The first to fail ends the wait, whatever those before it wait for.
      while (comm::Job* const job = next()) {
        if (job->failed()) this->core_->wait(*job, where);  // throws, as an error of that operation
        Some some(*this, *job);
        this->core_->wait(some, where);
      }
    } catch (...) {
      for (Entry& entry : entries_) this->core_->give_up(std::move(entry.job));
      entries_.clear();
      throw;
    }
    for (Entry& entry : entries_) {
      this->core_->dismiss(*entry.job);
      if (entry.receives) received.push_back(entry.transfer->info());
    }
    entries_.clear();
    return received;
  }

 private:
  struct Entry {
    Owner<comm::Job> job;
    comm::TransferJob<B> const* transfer = nullptr;
    bool receives = false;
  };
  /// Complete with one of them, or when any other has failed.
  class Some final : public comm::Job {
   public:
    Some(MessageGroup& group, comm::Job& job) : Job(job.operation()), group_(group), job_(job) {
      this->set_deadline_seconds(job.deadline_seconds());
    }
    bool abandon() noexcept override { return true; }  // the group does
    void withdraw() noexcept override { job_.withdraw(); }
    std::string awaiting() const override { return job_.awaiting(); }

   protected:
    bool advance() override {
      for (Entry& entry : group_.entries_)
        if (entry.job->poll_quietly() && entry.job->failed()) return true;
      return job_.done();
    }

   private:
    MessageGroup& group_;
    comm::Job& job_;
  };

  void check_here(Where where) const {
    if (this->core_ == nullptr) comm::throw_moved("group", where);
  }
  /// One that has failed, else the first that is not complete.
  comm::Job* next() const noexcept {
    comm::Job* first = nullptr;
    for (Entry const& entry : entries_) {
      if (entry.job->failed()) return entry.job.get();
      if (first == nullptr && !entry.job->done()) first = entry.job.get();
    }
    return first;
  }

  template <class Task>
  void add(Owner<Task> task, bool receives, Where where) {
    task->set_deadline_seconds(where.deadline_seconds());
    comm::TransferJob<B> const* const transfer = &task->transfer;
    entries_.push_back({std::move(task), transfer, receives});
    this->core_->enlist(*entries_.back().job);
  }
  void drop() noexcept {
    for (Entry& entry : entries_) {
      this->core_->dismiss(*entry.job);
      this->core_->adopt(std::move(entry.job));
    }
    entries_.clear();
  }

  List<Entry> entries_;
};

}  // namespace tutti
