// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Generating tokens.

#include <tutti/infer/candidates.hpp>
#include <tutti/infer/grammar.hpp>
#include <tutti/infer/grammar_matcher.hpp>
#include <tutti/infer/log_probabilities.hpp>
#include <tutti/infer/penalties.hpp>
#include <tutti/infer/sampler_options.hpp>
#include <tutti/infer/sampler.hpp>
#include <tutti/infer/decoder.hpp>
#include <tutti/infer/sequence.hpp>
#include <tutti/infer/speculation.hpp>
#include <tutti/infer/stopping.hpp>
#include <tutti/infer/completion.hpp>
#include <tutti/infer/draft_model.hpp>
#include <tutti/infer/evaluation.hpp>
#include <tutti/infer/generator.hpp>
#include <tutti/infer/generate.hpp>
#include <tutti/infer/generation.hpp>
#include <tutti/infer/stored_reader.hpp>
#include <tutti/infer/gguf_model.hpp>
#include <tutti/infer/gpt2_decoder.hpp>
#include <tutti/infer/hugging_face.hpp>
#include <tutti/infer/json_schema.hpp>
#include <tutti/infer/model_file.hpp>
#include <tutti/infer/ngram_drafter.hpp>
#include <tutti/infer/request_queue.hpp>
#include <tutti/infer/slot_drafters.hpp>
#include <tutti/infer/slots.hpp>
#include <tutti/infer/service.hpp>
#include <tutti/infer/openai.hpp>
#include <tutti/infer/sequence_files.hpp>
#include <tutti/infer/session_files.hpp>
