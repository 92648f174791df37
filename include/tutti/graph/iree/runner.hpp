// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// IREE in a process of its own: its compiler with a cache of modules, and its runtime with tensors by name on a
/// device. docs/adr/0027-iree-in-a-process-of-its-own.md says why it is so.

#include <tutti/core/concat.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/json_text.hpp>
#include <tutti/core/list.hpp>
#include <tutti/exec/child_process.hpp>
#include <tutti/graph/iree/runner_text.hpp>
#include <tutti/graph/iree/target_device.hpp>
#include <tutti/graph/stablehlo/module.hpp>
#include <tutti/graph/state.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph::iree {

struct RunnerOptions {
  TargetDevice device{};
  /// A Python that has the packages iree-base-compiler and iree-base-runtime. Empty: what TUTTI_IREE_PYTHON names, else
  /// python3.
  std::string python{};
  /// The folder of compiled modules, made where it is not there; several processes may share it. Empty: what
  /// TUTTI_IREE_CACHE names, else tutti/iree in XDG_CACHE_HOME or ~/.cache.
  std::string cache{};
  int threads = 0;  ///< of the runtime on processors; 0: as many as it likes
  std::int64_t compile_seconds = 1800;  ///< at most, for a module
  std::int64_t run_seconds = 1800;      ///< at most, for a run, or for moving tensors
};

/// Everything blocks until it is done, within the bounds of the options; then the process is ended, and every call
/// fails. Errors of all: io, where the process has ended; timeout. Not for several threads at a time.
class Runner {
 public:
  /// Errors: unavailable, where there is no such Python, or it lacks IREE.
  template <class = void>
  explicit Runner(RunnerOptions options = {}, std::source_location where = std::source_location::current())
      : options_(std::move(options)) {
    static_cast<void>(compile_flags(options_.device, where));  // a device that is none
    if (options_.python.empty()) options_.python = variable("TUTTI_IREE_PYTHON", "python3");
    if (options_.cache.empty()) options_.cache = variable("TUTTI_IREE_CACHE", default_cache());
    try {
      child_ = exec::ChildProcess({options_.python, "-c", runner_text}, where);
      request("{\"command\": \"hello\"}", {}, start_seconds, where);
      version_ = text(start_seconds, where);
    } catch (Error const& error) {
      throw Error(ErrorKind::unavailable, "iree",
                  concat("IREE cannot be had from the Python '", options_.python, "': ", error.message(),
                         ". Install iree-base-compiler and iree-base-runtime for a Python, and name that in "
                         "TUTTI_IREE_PYTHON"),
                  where);
    }
  }

  TargetDevice const& device() const noexcept { return options_.device; }
  std::string const& python() const noexcept { return options_.python; }
  /// The number of the process; 0 or less once it has ended.
  pid_t process() const noexcept { return child_.id(); }
  /// Of the compiler.
  std::string const& version() const noexcept { return version_; }

  struct Compiled {
    std::string path;
    bool found = false;  ///< it was compiled before: the text, the flags, the compiler and, where the module is for
                         ///< this processor alone, the processor were the same
  };
  /// Compiles a module for the device, or finds it in the cache. Errors: unavailable, with the compiler's sentence.
  template <class = void>
  Compiled compile(StablehloModule const& module, std::source_location where = std::source_location::current()) {
    List<std::string> flags = compile_flags(options_.device);
    // It computes float64 in float32, for want of functions in it, unless somebody hands in or gets such numbers.
    bool wide = false;
    for (auto const* ports : {&module.arguments, &module.results})
      for (StablehloPort const& port : *ports) wide = wide || port.dtype == DType::float64;
    if (wide) flags.push_back("--iree-input-demote-f64-to-f32=false");
    std::string words;
    for (std::string const& flag : flags) words += concat(words.empty() ? "\"" : ", \"", json_text(flag), '"');
    request(concat("{\"command\": \"compile\", \"flags\": [", words, "], \"cache\": \"", json_text(options_.cache),
                   "\", \"seconds\": ", options_.compile_seconds, "}"),
            bytes_of(module.text), options_.compile_seconds + 60, where);
    std::string const answer = text(options_.compile_seconds + 60, where, ErrorKind::unavailable);
    std::size_t const line = answer.find('\n');
    return {answer.substr(0, line), answer.substr(line + 1) == "found"};
  }

  /// Takes the device. Errors: unavailable, where there is none here.
  template <class = void>
  void open(std::source_location where = std::source_location::current()) {
    request(concat("{\"command\": \"open_device\", \"driver\": \"", driver(options_.device),
                   "\", \"threads\": ", driver(options_.device) == "local-task" ? options_.threads : 0, "}"),
            {}, options_.run_seconds, where);
    text(options_.run_seconds, where, ErrorKind::unavailable);
  }
  /// A compiled module, to be run by the number that it gets here. Needs `open`. Errors: device, where the file is not
  /// what it was.
  template <class = void>
  int load(std::string const& path, StablehloModule const& module,
           std::source_location where = std::source_location::current()) {
    request(concat("{\"command\": \"load\", \"path\": \"", json_text(path), "\", ", to_json(module).substr(1)), {},
            options_.run_seconds, where);
    text(options_.run_seconds, where);
    return programs_++;
  }

  /// Tensors of the device become what fields hold.
  template <class = void>
  void write(List<Field const*> const& fields, std::source_location where = std::source_location::current()) {
    std::uint64_t size = 0;
    for (Field const* const field : fields) size += static_cast<std::uint64_t>(field->bytes());
    std::int64_t const deadline = deadline_in(options_.run_seconds);
    begin(concat("{\"command\": \"write\", \"ports\": [", ports_of(fields), "]}"), size, deadline, where);
    for (Field const* const field : fields) child_.write(bytes_of(*field), deadline, where);
    text(options_.run_seconds, where);
  }
  /// Fields become what the device holds of their names.
  template <class = void>
  void read(List<Field*> const& fields, std::source_location where = std::source_location::current()) {
    request(concat("{\"command\": \"read\", \"ports\": [", ports_of(fields), "]}"), {}, options_.run_seconds, where);
    std::uint64_t size = 0;
    for (Field* const field : fields) size += static_cast<std::uint64_t>(field->bytes());
    std::int64_t const deadline = answered(options_.run_seconds, size, where);
    for (Field* const field : fields) child_.read(bytes_of(*field), deadline, where);
  }
  /// `inputs`: those of the module and its scalars one after another, as they lie in memory; `outputs` likewise.
  /// Updates stay on the device. Errors: device, with IREE's sentence.
  template <class = void>
  void run(int program, List<std::span<std::byte const>> const& inputs, List<std::span<std::byte>> const& outputs,
           std::source_location where = std::source_location::current()) {
    std::uint64_t given = 0, taken = 0;
    for (auto const& input : inputs) given += input.size();
    for (auto const& output : outputs) taken += output.size();
    std::int64_t const deadline = deadline_in(options_.run_seconds);
    begin(concat("{\"command\": \"run\", \"program\": ", program, "}"), given, deadline, where);
    for (auto const& input : inputs) child_.write(input, deadline, where);
    std::int64_t const until = answered(options_.run_seconds, taken, where);
    for (auto const& output : outputs) child_.read(output, until, where);
  }

  /// Ends the process. What the device held is gone.
  void close() noexcept { child_.close(); }

 private:
  static constexpr std::int64_t start_seconds = 120;  // the machine may be busy, and the packages on a slow disk

  static std::string variable(char const* name, std::string otherwise) {
    char const* const value = std::getenv(name);
    return value != nullptr && *value != 0 ? std::string(value) : otherwise;
  }
  static std::string default_cache() {
    std::string const home = variable("XDG_CACHE_HOME", concat(variable("HOME", "/tmp"), "/.cache"));
    return concat(home, "/tutti/iree");
  }
  static std::int64_t deadline_in(std::int64_t seconds) noexcept { return exec::now_ns() + seconds * 1'000'000'000; }
  static std::span<std::byte const> bytes_of(std::string_view text) noexcept {
    return std::as_bytes(std::span<char const>(text.data(), text.size()));
  }
  static std::span<std::byte> bytes_of(Field const& field) noexcept {
    return {static_cast<std::byte*>(field.data()), static_cast<std::size_t>(field.bytes())};
  }
  template <class Fields>
  static std::string ports_of(Fields const& fields) {
    List<StablehloPort> ports;
    for (auto const* const field : fields)
      ports.push_back({field->name, StablehloRole::state, field->dtype, field->shape});
    return stablehlo::json_of(ports);
  }

  void begin(std::string const& json, std::uint64_t size, std::int64_t deadline, std::source_location where) {
    std::uint64_t const sizes[2] = {json.size(), size};
    child_.write(std::as_bytes(std::span(sizes)), deadline, where);
    child_.write(bytes_of(json), deadline, where);
  }
  void request(std::string const& json, std::span<std::byte const> bytes, std::int64_t seconds,
               std::source_location where) {
    std::int64_t const deadline = deadline_in(seconds);
    begin(json, bytes.size(), deadline, where);
    child_.write(bytes, deadline, where);
  }
  /// The size of what follows. Errors: `kind`, where the process says why not.
  std::uint64_t head(std::int64_t deadline, std::source_location where, ErrorKind kind) {
    std::byte head[9];
    child_.read(head, deadline, where);
    std::uint64_t size = 0;
    std::memcpy(&size, head + 1, sizeof size);
    if (head[0] == std::byte{'y'}) return size;
    std::string said(static_cast<std::size_t>(size), ' ');
    child_.read(std::as_writable_bytes(std::span(said.data(), said.size())), deadline, where);
    throw Error(kind, "iree", concat("iree:", options_.device.text(), ": ", said), where);
  }
  std::string text(std::int64_t seconds, std::source_location where, ErrorKind kind = ErrorKind::device) {
    std::int64_t const deadline = deadline_in(seconds);
    std::string said(static_cast<std::size_t>(head(deadline, where, kind)), ' ');
    child_.read(std::as_writable_bytes(std::span(said.data(), said.size())), deadline, where);
    return said;
  }
  /// The deadline for reading an answer of so many bytes.
  std::int64_t answered(std::int64_t seconds, std::uint64_t size, std::source_location where) {
    std::int64_t const deadline = deadline_in(seconds);
    if (std::uint64_t const got = head(deadline, where, ErrorKind::device); got != size) {
      close();
      throw Error(ErrorKind::internal, "iree", concat("the runner answers ", got, " bytes, not ", size), where);
    }
    return deadline;
  }

  RunnerOptions options_;
  exec::ChildProcess child_;
  std::string version_;
  int programs_ = 0;
};

}  // namespace tutti::graph::iree
