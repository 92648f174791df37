// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes a model of any file that is read here (a run, a checkpoint, llm.c's, GGUF, a folder of safetensors, ONNX of
// this program) as a GGUF file, a folder of safetensors, an ONNX file, a model file of llm.c, or a checkpoint.

#include <tutti/train/flags.hpp>
#include <tutti/train/gguf_export.hpp>
#include <tutti/train/hugging_face_export.hpp>
#include <tutti/train/parameter_files.hpp>
#include <tutti/train/signals.hpp>
#if TUTTI_WITH_ONNX
#include <tutti/train/onnx/export.hpp>
#endif

#include <CLI/CLI.hpp>

#include <signal.h>
#include <unistd.h>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

namespace {

[[noreturn]] void refuse(std::string const& why) {
  throw tutti::Error(tutti::ErrorKind::configuration, "convert", why);
}

/// What --to means where --format does not say it.
std::string format_of(std::string const& to) {
  std::string name = to;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name.ends_with(".gguf")) return "gguf";
  if (name.ends_with(".bin")) return "llmc";
  if (name.ends_with(".onnx")) return "onnx";
  for (char const* const pickle : {".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
    if (name.ends_with(pickle))
      refuse("--to " + to +
             ": pickles of PyTorch are not written here. Write a folder of safetensors, which transformers reads");
  for (char const* const other : {".pb", ".tflite", ".h5", ".keras", ".xml"})
    if (name.ends_with(other))
      refuse("--to " + to + ": models of TensorFlow and OpenVINO are not written here. Write FILE.onnx, which "
             "OpenVINO reads, or a folder of safetensors, which transformers reads");
  if (name.ends_with(".safetensors") || name.ends_with(".json"))
    refuse("--to " + to + ": a model in safetensors is a folder. Give its name");
  return "safetensors";
}

}  // namespace

int main(int argc, char** argv) {
  std::string from, to, format, type, tokenizer_path;
  bool quiet = false;
  CLI::App app{"Writes a model in another format, or with numbers of another type.", "convert"};
  app.add_option("--from", from,
                 "folder of a checkpoint, --out folder of a run (its latest), llm.c model file, GGUF file, FILE.onnx "
                 "of this program, or folder with config.json and safetensors (GPT-2, LLaMA, Mistral, Qwen2, Phi-3)")
      ->required();
  app.add_option("--to", to,
                 "FILE.gguf; FILE.onnx, for onnxruntime; FILE.bin, a model file of llm.c (GPT-2); any other name: a "
                 "folder of safetensors, as transformers reads it")
      ->required();
  app.add_option("--format", format,
                 "in the place of what the name says: gguf, safetensors, onnx, llmc, or checkpoint, a folder as of a "
                 "run")
      ->check(CLI::IsMember({"gguf", "safetensors", "onnx", "llmc", "checkpoint"}));
  std::string names;
  for (auto const& facts : tutti::detail::block_facts) names += (names.empty() ? "" : ", ") + std::string(facts.name);
  app.add_option("--type", type,
                 "type of the matrices (default: F16 in a GGUF file, else the model's): " + names +
                     "; folders and ONNX: F32, F16, BF16; llm.c: F32 (version 3), BF16 (version 5); checkpoints: F32")
      ->check([&](std::string const& text) {
        return tutti::find_block_type(text) ? std::string() : text + " must be one of " + names;
      });
  app.add_option("--tokenizer", tokenizer_path, "tokenizer.json (default: the model's); a GGUF file has its own");
  app.add_flag("--quiet", quiet, "no progress");
  if (auto const code = tutti::train::parse_flags(app, argc, argv)) return *code;

  bool const terminal = ::isatty(STDERR_FILENO) != 0;
  try {
    using tutti::BlockType;
    if (format.empty()) format = format_of(to);
    std::error_code ignored;
    if (std::filesystem::equivalent(from, to, ignored))
      refuse("--from and --to are the same file or folder. Write to another name");
    tutti::train::StopSignals const signals;  // what is half written goes with its writer
    signals.add(SIGHUP);
    tutti::train::ModelSource const source = tutti::train::open_model(from, tokenizer_path);
    tutti::train::ModelExport options;
    options.type = format == "gguf" ? BlockType::f16 : format == "checkpoint" ? BlockType::f32 : source.type();
    if (format == "llmc" && options.type == BlockType::f16) options.type = BlockType::f32;
    if (!type.empty()) options.type = *tutti::find_block_type(type);
    if (format == "checkpoint" && options.type != BlockType::f32)
      refuse("--type " + type + ": checkpoints hold F32. Leave it out");
    if (format == "safetensors" && !source.folder.empty() && !tokenizer_path.empty())
      refuse("--tokenizer: from folder to folder the tokenizer's files are copied. Leave it out");
    std::int64_t fitted = 0, total_bytes = 0;
    long long tens = 0;
    options.progress = [&](std::string const& name, BlockType written, std::int64_t done, std::int64_t total) {
      if (signals.received() != 0) refuse("interrupted. Nothing was written");
      bool const matrix = written != BlockType::f32 || options.type == BlockType::f32;
      fitted += matrix && written != options.type;
      total_bytes = total;
      long long const percent = total > 0 ? 100 * done / total : 100;
      if (!quiet && terminal) std::fprintf(stderr, "\r%3lld %%  %-40s", percent, name.c_str());
      else if (!quiet && percent / 10 > tens) std::fprintf(stderr, "%lld %%\n", 10 * (tens = percent / 10));
    };
    if (format == "gguf" && source.gguf) tutti::train::write_gguf(to, *source.gguf, options);
    else if (format == "gguf") tutti::train::write_gguf(to, source, options);
    else if (format == "safetensors") tutti::train::write_hugging_face(to, source, options);
    else if (format == "llmc") tutti::train::write_llmc(to, source, options);
#if TUTTI_WITH_ONNX
    else if (format == "onnx") tutti::train::write_onnx(to, source, options);
#else
    else if (format == "onnx")
      refuse("--to " + to + ": this program was built without protobuf. Install libprotobuf-dev and protobuf-compiler "
             "and build it again");
#endif
    else tutti::train::write_checkpoint(to, source, options);
    if (!quiet) {
      std::fprintf(stderr, "%s%s: %.1f MB of weights, matrices in %s%*s\n", terminal ? "\r" : "", to.c_str(),
                   static_cast<double>(total_bytes) / 1e6, std::string(name(options.type)).c_str(), terminal ? 20 : 0,
                   "");
      if (format == "gguf" && fitted > 0)
        std::fprintf(stderr, "%lld matrices have rows that are no whole blocks of it: they are in Q8_0 or F16\n",
                     static_cast<long long>(fitted));
      if (format == "llmc") std::fprintf(stderr, "It has no tokenizer: keep tokenizer.json beside it\n");
      else if (!source.tokenizer) std::fprintf(stderr, "The model has no tokenizer.json, and so has this\n");
    }
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%sconvert: %s\n", quiet || !terminal ? "" : "\n", error.what());
    int const signal = tutti::train::StopSignals::received();
    return signal != 0 ? 128 + signal : 1;
  }
}
