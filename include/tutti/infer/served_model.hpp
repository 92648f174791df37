// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A model ready to answer, with all that belongs to it; and the place where one takes over from another while requests
/// come in.

#include <tutti/data/chat_template.hpp>
#include <tutti/infer/compute_pool.hpp>
#include <tutti/infer/decoder_fit.hpp>
#include <tutti/infer/draft_model.hpp>
#include <tutti/infer/model_file.hpp>
#include <tutti/infer/service.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::infer {

struct ServedModelOptions {
  ServiceOptions service{.decoder = {.slots = 4, .capacity = 0},
                         .prompt_chunk = 0};  ///< 0: chosen, as fit_service does
  FitOptions fit{};                           ///< its weights and threads follow from the model
  std::string chat_format{};                  ///< data::choose_chat_template's
  int threads = 0;                            ///< 0: all processors of this process; models of equal numbers share them
};

/// Not movable; its service is thread-safe.
class ServedModel {
 public:
  /// `draft`: foretells tokens, with service.drafts.tokens at once. Files that weights lie in are mapped.
  /// Errors    configuration (no chat template), out_of_memory (with figures); those of Service and
  ///           check_same_vocabulary
  ServedModel(std::string name, LoadedModel loaded, ServedModelOptions const& options,
              std::optional<LoadedModel> draft = std::nullopt)
      : name_(std::move(name)),
        loaded_(std::move(loaded)),
        draft_(std::move(draft)),
        chat_(data::choose_chat_template(loaded_.chat_template, options.chat_format)),
        pool_(ComputePool::of_process(options.threads)),
        fitted_(fit(options)),
        service_(*pool_, loaded_.model, loaded_.tokenizer, fitted_.options) {}
  ServedModel(ServedModel const&) = delete;
  ServedModel& operator=(ServedModel const&) = delete;

  std::string const& name() const noexcept { return name_; }
  nn::StoredModel const& model() const noexcept { return loaded_.model; }
  data::Tokenizer const& tokenizer() const noexcept { return loaded_.tokenizer; }
  data::ChatTemplate const& chat() const noexcept { return chat_; }
  Service& service() noexcept { return service_; }
  /// What was chosen, for people.
  std::vector<std::string> const& notes() const noexcept { return fitted_.notes; }

 private:
  FittedService fit(ServedModelOptions const& options) {
    ServiceOptions service = options.service;
    service.name = name_;
    if (draft_) {
      check_same_vocabulary(loaded_.tokenizer, draft_->tokenizer, draft_->model.source);
      service.drafts.model = &draft_->model;
    }
    FitOptions fit = options.fit;
    fit.threads = pool_->context().threads();
    fit.beside = {.weights = loaded_.model.bytes() + (draft_ ? draft_->model.bytes() : 0), .mapped = true};
    return fit_service(loaded_.model, std::move(service), fit);
  }

  std::string name_;
  LoadedModel loaded_;
  std::optional<LoadedModel> draft_;
  data::ChatTemplate chat_;
  std::shared_ptr<ComputePool> pool_;
  FittedService fitted_;
  Service service_;  // last: its thread uses all the others
};

/// The model that answers now. Whoever has asked for it keeps it: requests in flight finish on the model that they
/// began with, which ends when the last of them lets go of it. Thread-safe.
class HotModel {
 public:
  explicit HotModel(std::shared_ptr<ServedModel> first) : now_(counted(std::move(first))) {}

  std::shared_ptr<ServedModel> get() const {
    std::lock_guard const guard(mutex_);
    return now_;
  }
  /// Calls load(), which makes a model beside the one that answers, and puts it in its place. One at a time; blocking,
  /// while others go on to get the old one. Errors: those of load, and the old one stays.
  void swap(std::function<std::shared_ptr<ServedModel>()> const& load) {
    std::lock_guard const one(loading_);
    std::shared_ptr<ServedModel> next = counted(load());
    std::lock_guard const guard(mutex_);
    now_.swap(next);
  }
  /// Of all models that there have been, each answer once; what a cache can hold is that of the models that are there.
  ServiceStatus status() const {
    std::lock_guard const guard(models_->mutex);
    ServiceStatus sum = models_->ended;
    for (ServedModel* const model : models_->there) sum += model->service().status();
    return sum;
  }

 private:
  struct Models {
    std::mutex mutex;
    std::vector<ServedModel*> there;  // the one that answers, and those that still finish requests
    ServiceStatus ended;              // counts of the others
  };
  /// The same model, which leaves its counts here before it ends.
  std::shared_ptr<ServedModel> counted(std::shared_ptr<ServedModel> model) const {
    ServedModel* const there = model.get();
    {
      std::lock_guard const guard(models_->mutex);
      models_->there.push_back(there);
    }
    return {there, [models = models_, held = std::move(model)](ServedModel* one) mutable {
              {
                std::lock_guard const guard(models->mutex);
                std::erase(models->there, one);
                models->ended.add_ended(one->service().status());
              }
              held.reset();
            }};
  }

  std::shared_ptr<Models> models_ = std::make_shared<Models>();
  std::mutex loading_;
  mutable std::mutex mutex_;
  std::shared_ptr<ServedModel> now_;
};

}  // namespace tutti::infer
