// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// How a training run begins from a checkpoint or from nothing, and what it keeps.

#include <tutti/train/loop.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <source_location>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::train {

template <class Loss, class Device>
void Run<Loss, Device>::prepare() {
  if (o().gradient_statistics > 0) step_.plan_measures();
  step_.compile();
  // One rank copies what the checkpoint has; where ranks have parts, all together copy it once.
  bool const copies = o().async_checkpoint, parts = step_.in_parts();
  double const copied = !copies || parts ? 0 : step_.divided() ? 1 : 1.0 / ranks_on_node_;
  double const whole = copies && parts ? state_bytes_of_parameter(o()) * static_cast<double>(step_.parameter_count())
                                       : 0;
  detail::require_memory(o(), ranks_on_node_, step_.divided(), (1 + copied) * static_cast<double>(common_bytes()),
                         static_cast<double>(own_bytes() + step_.workspace_bytes()) + setup_.bytes_of_tokens() +
                             whole / ranks_on_node_,
                         machine_.available_memory());
  if (root() && !o().out.empty()) io::make_folder(o().out);
}

template <class Loss, class Device>
void Run<Loss, Device>::begin_history() {
  if (!setup_.same_run) {
    if (o().overwrite) remove_checkpoints(o().out);
  } else
    for (std::string const& name : set_checkpoints_aside(o().out, setup_.first_step))
      setup_.changes.push_back("a later checkpoint, kept as " + name);
}

template <class Loss, class Device>
void Run<Loss, Device>::restore() {
  if (setup_.resume) {
    if (auto text = take_product_choices(machine_, setup_.resume->folder(), port_->rank()); !text.empty())
      setup_.warnings.push_back(std::move(text));
    step_.fill_each([&](graph::State& whole) {
      read_parameters(*setup_.resume, whole);
      read_moments(*setup_.resume, whole);
    });
    step_.set_updates(setup_.first_step);
  } else if (initial_) {
    step_.fill([&](graph::State& whole) {
      if (whole.writer()) initial_(whole);
    });
    initial_ = nullptr;  // and the file that it may read
  } else {
    step_.initialise(static_cast<std::uint64_t>(o().seed));
  }
  parallel::broadcast(*data_parallel_.port, step_.state());
  if (averages_gradients()) step_.require_equal("at the start");
  else parallel::require_equal(*port_, step_.state(), "at the start");
  step_.mark_compared();
  std::visit([&](auto& algorithm) { algorithm.begin(setup_.resume ? &*setup_.resume : nullptr); }, algorithm_);
  setup_.resume.reset();  // its mapping may be of a checkpoint that --keep will remove
}

template <class Loss, class Device>
void Run<Loss, Device>::checkpoint() {
  last_saved_ = done_;
  InPhase const phase(outputs_, "checkpoint");
  if (!o().out.empty()) with_agreed_model([&] { write_checkpoint(); });
}

template <class Loss, class Device>
void Run<Loss, Device>::write_checkpoint() {
  std::string const when = "at the checkpoint of step " + std::to_string(done_);
  if (averages_gradients()) step_.require_equal(when);
  else parallel::require_equal(*port_, step_.state(), when);
  keep_product_choices(machine_, o().out, port_->rank());
  if (!step_.in_parts())
    return step_.show(root(), [&](graph::State& whole) { write_checkpoint(contents_of(whole, done_)); });
  // One whole tensor at a time: ranks have parts because there is no room for all of them.
  graph::State whole = step_.whole_fields();
  CheckpointContents contents = contents_of(whole, done_);
  std::vector<graph::Field*> fields;
  for (auto* const list : {&contents.parameters, &contents.optimizer})
    for (io::NamedTensor& tensor : *list) {
      fields.push_back(&whole.at(tensor.name));
      tensor.data = nullptr;
    }
  if (averages_gradients() && begin_parts(contents, whole)) return;
  std::size_t next = 0;
  auto const go_on = [&](bool wanted) {
    if (next > 0) fields[next - 1]->memory.clear(0, fields[next - 1]->bytes());
    step_.collect(*fields[next], wanted);
    ++next;
  };
  contents.load = [&](io::NamedTensor const&) {
    go_on(true);
    return fields[next - 1]->data();
  };
  std::exception_ptr failure;
  try {
    write_checkpoint(std::move(contents));
  } catch (...) {
    failure = std::current_exception();
  }
  // The others' parts, of which they do not know who takes them: also where a full disk does not.
  while (next < fields.size()) go_on(false);
  if (failure) std::rethrow_exception(failure);
}

template <class Loss, class Device>
void Run<Loss, Device>::add_facts(CheckpointContents& contents) {
  if (setup_.tokenizer) contents.tokenizer = setup_.tokenizer->text;
  contents.facts = checkpoint_facts(setup_, done_, data_ranks());
}

template <class Loss, class Device>
bool Run<Loss, Device>::begin_parts(CheckpointContents& contents, graph::State const& whole) {
  finish_checkpoint();  // of the one before
  std::unique_ptr<UnfinishedCheckpoint> aside;
  double token = 0;  // of 32 bits, so that it is exact
  if (root()) {
    aside = std::make_unique<UnfinishedCheckpoint>(o().out, contents.step);
    make_room(*aside, contents);
    token = 1.0 + std::random_device()();
    aside->sign(fmt::format("{}", token));
  }
  token = parallel::largest(*port_, token);
  auto const folder = std::filesystem::path(o().out) / "checkpoints" / detail::partial_folder(contents.step);
  double seen = part_.open(folder, fmt::format("{}", token)) ? 1 : 0;
  parallel::all_reduce(*port_, {&seen, 1}, comm::PortOp::min);
  if (seen == 0) {
    part_.close();
    if (!std::exchange(told_of_folders_, true))
      outputs_.line("not all ranks can write to " + o().out + ": the first one writes checkpoints for all");
    return false;
  }
  std::visit([&](auto& algorithm) { algorithm.keep(contents, o().out); }, algorithm_);
  if (root()) add_facts(contents);
  std::vector<CheckpointRun> runs;
  for (int file = 0; file < 2; ++file) {
    std::vector<io::NamedTensor> const& tensors = contents.tensors(file);
    std::vector<std::uint64_t> const begins = io::safetensors_places(tensors).begins;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      step_.each_run(*whole.find(tensors[i].name), [&](std::int64_t at, std::byte const* data, std::int64_t bytes) {
        runs.push_back({file, begins[i] + static_cast<std::uint64_t>(at), data, bytes});
      });
  }
  part_.write(std::move(runs), o().async_checkpoint);
  parts_.emplace(CheckpointInParts{std::move(contents), std::move(aside)});
  if (!o().async_checkpoint) finish_checkpoint();
  return true;
}

template <class Loss, class Device>
void Run<Loss, Device>::finish_parts() {
  std::exception_ptr failure;
  try {
    part_.finish();
  } catch (...) {
    failure = std::current_exception();
  }
  CheckpointInParts parts = std::move(*parts_);
  parts_.reset();
  double failed = failure ? port_->rank() : port_->size();
  parallel::all_reduce(*port_, {&failed, 1}, comm::PortOp::min);
  if (failed < port_->size()) {  // the same words on all ranks, whichever is heard first
    int const rank = static_cast<int>(failed);
    char said[1024] = {};
    if (failed == port_->rank()) try {
        std::rethrow_exception(failure);
      } catch (std::exception const& error) {
        std::snprintf(said, sizeof said, "%s", error.what());
      }
    port_->wait(port_->start_broadcast(said, sizeof said, DType::byte, rank, std::source_location::current()));
    throw Error(ErrorKind::io, "save_checkpoint",
                concat("rank ", rank, " could not write its part of the checkpoint of step ", parts.contents.step, ": ",
                       static_cast<char const*>(said)));
  }
  if (!root()) return;
  std::int64_t const step = parts.contents.step;
  auto const shared = std::make_shared<CheckpointInParts>(std::move(parts));  // a std::function is copied
  writer_.begin(step, [shared, keep = o().keep] { return complete_parts(*shared->aside, shared->contents, keep); });
}

template <class Loss, class Device>
void Run<Loss, Device>::write_checkpoint(CheckpointContents contents) {
  std::visit([&](auto& algorithm) { algorithm.keep(contents, o().out); }, algorithm_);
  if (!root()) return;
  add_facts(contents);
  // Where ranks have parts there is no room for all of them.
  if (o().async_checkpoint && !step_.in_parts()) {
    finish_checkpoint();  // of the one before
    writer_.begin(o().out, std::move(contents), o().keep);
  } else {
    tell_of_checkpoint({done_, save_checkpoint(o().out, contents, o().keep)});
  }
}

template <class Loss, class Device>
void Run<Loss, Device>::finish_checkpoint() {
  if (parts_) finish_parts();
  if (std::optional<CheckpointWriter::Written> const written = writer_.finish()) tell_of_checkpoint(*written);
}

template <class Loss, class Device>
void Run<Loss, Device>::tell_of_checkpoint(CheckpointWriter::Written const& written) {
  saved_ = written.folder.string();
  outputs_.line("step " + std::to_string(written.step) + ": checkpoint " + saved_);
  outputs_.record({{"type", "checkpoint"}, {"step", written.step}, {"path", saved_}});
}

}  // namespace tutti::train
