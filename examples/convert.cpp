// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes GGUF files: from checkpoints of train_gpt2, llm.c model files, and GGUF files with weights of another type.

#include <tutti/data/tokenizer_json.hpp>
#include <tutti/train/flags.hpp>
#include <tutti/train/gguf_export.hpp>
#include <tutti/train/gpt2_files.hpp>
#include <tutti/train/llama_files.hpp>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace {

bool is_gguf(std::string const& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, 4);
  return std::string(magic, 4) == "GGUF";
}

}  // namespace

int main(int argc, char** argv) {
  std::string from, to, type = "f16", tokenizer_path;
  bool quiet = false;
  CLI::App app{"Converts a trained model to a GGUF file, with its tokenizer.", "convert"};
  app.add_option("--from", from,
                 "folder of a checkpoint, --out folder of a run (its latest), llm.c model file, or GGUF file")
      ->required();
  app.add_option("--to", to, "GGUF file to write")->required();
  std::string names;
  for (auto const& facts : tutti::detail::block_facts) names += (names.empty() ? "" : ", ") + std::string(facts.name);
  app.add_option("--type", type, "type of the matrices: " + names)
      ->capture_default_str()
      ->check([&](std::string const& text) {
        return tutti::find_block_type(text) ? std::string() : text + " must be one of " + names;
      });
  app.add_option("--tokenizer", tokenizer_path, "tokenizer.json (default: the checkpoint's); a GGUF file has its own");
  app.add_flag("--quiet", quiet, "no progress");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;

  try {
    tutti::train::GgufExport options{.type = *tutti::find_block_type(type)};
    std::int64_t fitted = 0, total_bytes = 0;
    options.progress = [&](std::string const& name, tutti::BlockType written, std::int64_t done, std::int64_t total) {
      bool const matrix = written != tutti::BlockType::f32 || options.type == tutti::BlockType::f32;
      fitted += matrix && written != options.type;
      total_bytes = total;
      if (!quiet)
        std::fprintf(stderr, "\r%3lld %%  %-40s", static_cast<long long>(total > 0 ? 100 * done / total : 100),
                     name.c_str());
    };
    std::error_code ignored;
    if (std::filesystem::equivalent(from, to, ignored))
      throw tutti::Error(tutti::ErrorKind::configuration, "convert",
                         "--from and --to are the same file. Write to another one");
    if (is_gguf(from)) {
      if (!tokenizer_path.empty())
        throw tutti::Error(tutti::ErrorKind::configuration, "convert",
                           "a GGUF file has its own tokenizer. Leave --tokenizer out");
      tutti::train::write_gguf(to, tutti::io::Gguf(from), options);
    } else {
      bool const folder = tutti::io::folder_exists(from);
      std::filesystem::path const beside =
          folder ? tutti::train::Gpt2Model::folder(from) : std::filesystem::path(from).parent_path();
      if (tokenizer_path.empty()) tokenizer_path = (beside / "tokenizer.json").string();
      std::string const name = beside.stem().string();
      std::optional<tutti::train::Checkpoint> checkpoint;
      if (folder) checkpoint.emplace(beside);
      if (checkpoint && tutti::train::architecture_of(*checkpoint) == "llama")
        tutti::train::write_gguf(to, *checkpoint, tutti::data::read_tokenizer(tokenizer_path), name, options);
      else
        tutti::train::write_gguf(to, tutti::train::Gpt2Model::load(from).weights(),
                                 tutti::data::read_tokenizer(tokenizer_path), name, options);
    }
    if (!quiet) {
      std::fprintf(stderr, "\r%s: %.1f MB of weights, matrices in %s%-20s\n", to.c_str(),
                   static_cast<double>(total_bytes) / 1e6, std::string(name(options.type)).c_str(), "");
      if (fitted > 0)
        std::fprintf(stderr, "%lld matrices have rows that are no whole blocks of it: they are in Q8_0 or F16\n",
                     static_cast<long long>(fitted));
    }
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%sconvert: %s\n", quiet ? "" : "\n", error.what());
    return 1;
  }
}
