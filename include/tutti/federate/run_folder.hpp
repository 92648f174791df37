// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a shepherd keeps on disk so that it can be killed at any moment: its log, and the parameters and momentum after
/// the latest outer step.
///
///   DIR/program.json              what the run is; written first, and the same ever after
///   DIR/log.jsonl                 see log_text.hpp; it only grows
///   DIR/address                   where the shepherd listens, or did
///   DIR/round_00000012.safetensors  parameters and momentum after 12 outer steps
///
/// A snapshot is there, whole and durable, before the log says that its outer step was done, and the one before it goes
/// only afterwards. So whatever the log says last, its snapshot is there.

#include <tutti/federate/log_text.hpp>
#include <tutti/federate/shepherd_actions.hpp>
#include <tutti/io/file.hpp>
#include <tutti/io/folder_lock.hpp>
#include <tutti/io/safetensors.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

namespace tutti::federate {

/// Errors: io, of all operations, with the path.
class RunFolder {
 public:
  /// Makes the folder, and holds it: one shepherd at a time. `program` is the run's description. Reads the log, and
  /// cuts off a last record that a crash left unfinished.
  /// Errors: configuration, when the folder is another run's; format, for a log that is damaged.
  RunFolder(std::string const& path, std::string const& program) : path_(path) {
    io::make_folder(path);
    lock_ = io::FolderLock(path);
    if (!io::file_exists(path + "/program.json")) io::write_file(path + "/program.json", program);
    else if (io::read_file(path + "/program.json") != program)
      throw Error(ErrorKind::configuration, "federate",
                  path +
                      " is of a run with other settings or data (they stand in its program.json), or of another "
                      "release. Start this shepherd with those, or that release's, or choose another --out, or "
                      "remove the folder");
    std::string const log = path + "/log.jsonl";
    std::string const text = io::file_exists(log) ? io::read_file(log) : std::string();
    LogText parsed = parse_log(text, log);
    history_ = std::move(parsed.history);
    file_ = io::detail::Descriptor(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (file_.get() < 0 ||
        (parsed.whole != text.size() && ::ftruncate(file_.get(), static_cast<::off_t>(parsed.whole)) != 0))
      io::detail::throw_errno("federate", log + " cannot be written. Make it writable, or choose another --out");
    io::sync_folder(path);
  }

  History const& history() const noexcept { return history_; }  ///< as of the beginning
  void append(Record const& record, bool durable) {
    std::string const line = to_line(record);
    for (std::size_t done = 0; done < line.size();) {
      ::ssize_t const wrote = ::write(file_.get(), line.data() + done, line.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) fail("cannot be written");
      done += static_cast<std::size_t>(wrote);
    }
    if (durable && ::fdatasync(file_.get()) != 0) fail("cannot be synced");
    if (auto const* closed = std::get_if<Closed>(&record); closed != nullptr && durable)
      remove_other_than(closed->round + 1);
  }
  void save(std::int64_t rounds, OuterModel& model) {
    auto const tensor = [](char const* name, std::span<float> values) {
      return io::NamedTensor{name, DType::float32, {static_cast<std::int64_t>(values.size())}, values.data()};
    };
    io::NamedTensor const tensors[] = {tensor("momentum", model.momentum()), tensor("parameters", model.parameters())};
    io::write_safetensors(snapshot(rounds), tensors);
  }
  /// Gives the model what the log's last outer step left; nothing where there was none.
  /// Errors: format, when the snapshot is of another model. Whether its bytes are right, ShepherdCore sees.
  void restore(OuterModel& model) const {
    if (history_.round() == 0) return;
    io::Safetensors const file(snapshot(history_.round()));
    for (auto const& [name, to] :
         {std::pair("parameters", model.parameters()), std::pair("momentum", model.momentum())}) {
      TensorView<float const> const from = file.view<float>(name);
      if (from.size() != static_cast<std::int64_t>(to.size()))
        throw Error(ErrorKind::format, "federate", file.path() + " is of another model. Choose another --out");
      std::copy_n(from.data(), to.size(), to.data());
    }
  }

 private:
  std::string snapshot(std::int64_t rounds) const {
    char name[48];
    std::snprintf(name, sizeof(name), "/round_%08lld.safetensors", static_cast<long long>(rounds));
    return path_ + name;
  }
  void remove_other_than(std::int64_t rounds) const {
    std::string const kept = std::filesystem::path(snapshot(rounds)).filename().string();
    std::error_code ignored;  // what cannot be removed now is removed after the next step
    for (auto const& entry : std::filesystem::directory_iterator(path_, ignored))
      if (std::string const name = entry.path().filename().string(); name.starts_with("round_") && name != kept)
        std::filesystem::remove(entry.path(), ignored);
  }
  [[noreturn]] void fail(char const* what) const {
    io::detail::throw_errno("federate", path_ + "/log.jsonl " + what + ". Free space; the run goes on from there");
  }

  std::string path_;
  io::FolderLock lock_;
  io::detail::Descriptor file_{-1};
  History history_;
};

}  // namespace tutti::federate
