// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Files: safe writes and formats.

#include <tutti/io/file.hpp>
#include <tutti/io/atomic_folder.hpp>
#include <tutti/io/folder_lock.hpp>
#include <tutti/io/gguf_value.hpp>
#include <tutti/io/gguf_parse.hpp>
#include <tutti/io/gguf.hpp>
#include <tutti/io/gguf_writer.hpp>
#include <tutti/io/json.hpp>
#include <tutti/io/named_tensor.hpp>
#include <tutti/io/token_shard.hpp>
#include <tutti/io/llmc_model.hpp>
#include <tutti/io/model_format.hpp>
#include <tutti/io/npy.hpp>
#include <tutti/io/safetensors.hpp>
#include <tutti/io/safetensors_shards.hpp>
#include <tutti/io/safetensors_writer.hpp>
#include <tutti/io/stamp.hpp>
#include <tutti/io/target_mask.hpp>
#include <tutti/io/tensorboard.hpp>
