// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// From text to batches: tokenizer, token shards, loader.

#include <tutti/data/unicode_tables.hpp>
#include <tutti/data/utf8.hpp>
#include <tutti/data/unicode.hpp>
#include <tutti/data/added_tokens.hpp>
#include <tutti/data/byte_alphabet.hpp>
#include <tutti/data/merges.hpp>
#include <tutti/data/compiled_pattern.hpp>
#include <tutti/data/piece_scanner.hpp>
#include <tutti/data/pre_tokenizer.hpp>
#include <tutti/data/tokenizer_parts.hpp>
#include <tutti/data/tokenizer.hpp>
#include <tutti/data/bpe_trainer.hpp>
#include <tutti/data/chat_template.hpp>
#include <tutti/data/corpus.hpp>
#include <tutti/data/jsonl.hpp>
#include <tutti/data/token_corpus.hpp>
#include <tutti/data/packing.hpp>
#include <tutti/data/permutation.hpp>
#include <tutti/data/loader.hpp>
#include <tutti/data/tokenizer_reader.hpp>
#include <tutti/data/tokenizer_json.hpp>
#include <tutti/data/dataset.hpp>
#include <tutti/data/mixture.hpp>
#include <tutti/data/stream_decoder.hpp>
#include <tutti/data/text_pattern.hpp>
#include <tutti/data/vocabulary.hpp>
#include <tutti/data/vocabulary_files.hpp>
#include <tutti/data/tokenizer_files.hpp>
