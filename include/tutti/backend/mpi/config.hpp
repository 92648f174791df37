// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `MpiConfig`: what a program or its environment can tell the backend on MPI. No MPI header: a program can read and
/// print it before it decides for MPI. docs/guides/mpi.md has the table.

#include <tutti/backend/mpi/tuning.hpp>
#include <tutti/comm/collective.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/setting.hpp>
#include <tutti/exec/wait.hpp>

#include <unistd.h>
#include <array>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tutti {
namespace mpi {

enum class ThreadLevel : unsigned char { single, funneled, serialized, multiple };
enum class Profiling : unsigned char { library, off, on, detailed };
enum class Switch : unsigned char { automatic, on, off };
using comm::CheckLevel;

/// How ranks wait. Automatic, while every rank of the node has a processor of its own: spin briefly, then yield, and
/// sleep late, because large messages move only while somebody looks. Else as `sleep`: who yields again and again keeps
/// processors busy with nothing, and is not woken ahead of others when what it waits for comes.
struct Wait {
  static constexpr int forever = 1'000'000'000;
  static constexpr exec::WaitPolicy spin{.spins = forever, .yields = 0, .sleep_ns = 50'000};
  static constexpr exec::WaitPolicy yield{.spins = 0, .yields = forever, .sleep_ns = 50'000};
  static constexpr exec::WaitPolicy sleep{.spins = 0, .yields = 100, .sleep_ns = 50'000};

  Wait() = default;
  Wait(exec::WaitPolicy chosen) : automatic(false), policy(chosen) {}

  bool automatic = true;
  exec::WaitPolicy policy{.spins = 200, .yields = 50'000, .sleep_ns = 50'000};

  /// The policy on a node. `crowded`: it has more ranks than processors for them.
  exec::WaitPolicy on(bool crowded) const noexcept { return automatic && crowded ? sleep : policy; }
  /// Whether waits sleep often enough for it to be worth waking them.
  static bool sleeps_soon(exec::WaitPolicy chosen) noexcept {
    return chosen.spins + std::int64_t{chosen.yields} < 10'000;
  }
};

/// Size of a buffer that collectives pass through.
struct BufferSize {
  BufferSize(std::int64_t size) noexcept : bytes(size) {}
  std::int64_t bytes;
};

/// How many consecutive ranks of the world a node is taken to hold at most; 0 for as many as it does.
struct NodeRanks {
  NodeRanks(std::int64_t ranks) noexcept : count(ranks) {}
  std::int64_t count;
};

/// 0 or bytes.
struct CopyLimit {
  CopyLimit(std::int64_t n) noexcept : bytes(n) {}
  std::int64_t bytes;
};

}  // namespace mpi

template <>
inline constexpr auto setting::spelling<mpi::ThreadLevel> =
    std::array<std::string_view, 4>{"single", "funneled", "serialized", "multiple"};
template <>
inline constexpr auto setting::spelling<mpi::Profiling> =
    std::array<std::string_view, 4>{"library", "off", "on", "detailed"};
template <>
inline constexpr auto setting::spelling<mpi::Switch> = std::array<std::string_view, 3>{"auto", "on", "off"};
template <>
inline constexpr auto setting::spelling<comm::CheckLevel> = std::array<std::string_view, 3>{"off", "cheap", "full"};

namespace mpi {

enum class Source : unsigned char { preset, environment, code };

/// A value that knows where it comes from. What is assigned comes from code.
template <class T>
class Setting {
 public:
  template <class U>
    requires(std::convertible_to<U, T> && !std::same_as<std::remove_cvref_t<U>, Setting>)
  Setting(U&& value) : value_(std::forward<U>(value)), source_(Source::code) {}
  Setting(T value, Source source) : value_(std::move(value)), source_(source) {}

  operator T const&() const noexcept { return value_; }
  T const& get() const noexcept { return value_; }
  T const* operator->() const noexcept { return &value_; }
  Source source() const noexcept { return source_; }

 private:
  T value_;
  Source source_;
};
template <class T>
Setting<T> preset(T value) {
  return {std::move(value), Source::preset};
}

namespace detail {

using setting::parse, setting::Enumeration;

template <Enumeration E>
std::string allowed(E const&) {
  return "Use " + setting::choices<E>();
}
template <Enumeration E>
std::string text_of(E const& value) {
  auto const index = static_cast<std::size_t>(value);
  return index < setting::spelling<E>.size() ? std::string(setting::spelling<E>[index]) : std::to_string(index);
}
template <Enumeration E>
bool valid(E const& value) {
  return static_cast<std::size_t>(value) < setting::spelling<E>.size();
}

inline std::string allowed(bool const&) { return "Use 1 or 0"; }
inline std::string text_of(bool const& value) { return value ? "1" : "0"; }
inline bool parse(std::string_view text, bool& value) {
  value = text == "1";
  return value || text == "0";
}
inline bool valid(bool const&) { return true; }

inline std::string allowed(double const&) { return "Give seconds, above 0 and below 1e9"; }
inline std::string text_of(double const& value) { return setting::text_of(value); }
inline bool valid(double const& value) { return value > 0 && value < 1e9; }

inline std::string allowed(std::int64_t const&) { return "Give a number of at least 1"; }
inline std::string text_of(std::int64_t const& value) { return std::to_string(value); }
inline bool valid(std::int64_t const& value) { return value >= 1; }

inline std::string allowed(BufferSize const&) { return "Give bytes, from 4096 to 1073741824 and a multiple of 64"; }
inline std::string text_of(BufferSize const& value) { return std::to_string(value.bytes); }
inline bool parse(std::string_view text, BufferSize& value) { return parse(text, value.bytes); }
inline bool valid(BufferSize const& value) {
  return value.bytes >= 4096 && value.bytes <= 1 << 30 && value.bytes % 64 == 0;
}

inline std::string allowed(NodeRanks const&) {
  return "Give 0 for nodes as MPI tells them, or ranks of a node, from 1 to 2147483647";
}
inline std::string text_of(NodeRanks const& value) { return std::to_string(value.count); }
inline bool parse(std::string_view text, NodeRanks& value) { return parse(text, value.count); }
inline bool valid(NodeRanks const& value) { return value.count >= 0 && value.count <= INT32_MAX; }

inline std::string allowed(CopyLimit const&) { return "Give 0 or bytes"; }
inline std::string text_of(CopyLimit const& value) { return std::to_string(value.bytes); }
inline bool parse(std::string_view text, CopyLimit& value) { return parse(text, value.bytes); }
inline bool valid(CopyLimit const& value) { return value.bytes >= 0; }

inline std::string allowed(Tuning const&) {
  return "Use auto, library, latency or bandwidth, or a list NAME=VALUE NAME=VALUE of variables that begin with "
         "MPIR_CVAR_ (MPICH) or OMPI_MCA_ (Open MPI)";
}
inline std::string text_of(Tuning const& value) { return value.text(); }
inline bool parse(std::string_view text, Tuning& value) {
  value = Tuning(std::string(text));
  return true;
}
inline bool valid(Tuning const& value) { return value.valid(); }

inline std::string allowed(Wait const&) {
  return "Use auto, spin, yield, sleep, or SPINS,YIELDS,SLEEP_NS: two numbers from 0 to 1000000000 and nanoseconds "
         "from "
         "1 to 999999999";
}
struct NamedPolicy {
  std::string_view name;
  exec::WaitPolicy policy;
};
inline constexpr NamedPolicy named_policies[] = {{"spin", Wait::spin}, {"yield", Wait::yield}, {"sleep", Wait::sleep}};
inline std::string text_of(Wait const& value) {
  if (value.automatic) return "auto";
  exec::WaitPolicy const& p = value.policy;
  for (auto const& [name, policy] : named_policies)
    if (p.spins == policy.spins && p.yields == policy.yields && p.sleep_ns == policy.sleep_ns) return std::string(name);
  return std::to_string(p.spins) + "," + std::to_string(p.yields) + "," + std::to_string(p.sleep_ns);
}
inline bool parse(std::string_view text, Wait& value) {
  value = {};
  if (text == "auto") return true;
  for (auto const& [name, policy] : named_policies)
    if (text == name) {
      value = policy;
      return true;
    }
  std::int64_t numbers[3] = {};
  for (int i = 0; i < 3; ++i) {
    std::size_t const comma = text.find(',');
    if ((comma == std::string_view::npos) != (i == 2)) return false;
    if (!parse(text.substr(0, comma), numbers[i]) || numbers[i] < 0 || numbers[i] > Wait::forever) return false;
    text.remove_prefix(i == 2 ? text.size() : comma + 1);
  }
  value = exec::WaitPolicy{static_cast<int>(numbers[0]), static_cast<int>(numbers[1]), numbers[2]};
  return true;
}
inline bool valid(Wait const& value) {
  exec::WaitPolicy const& p = value.policy;
  return p.spins >= 0 && p.spins <= Wait::forever && p.yields >= 0 && p.yields <= Wait::forever && p.sleep_ns >= 1 &&
         p.sleep_ns <= 999'999'999;
}

}  // namespace detail
}  // namespace mpi

/// Each key is set in code, else by the variable TUTTI_MPI_ with its name in capitals, else it has its default:
/// `MpiConfig{.check_level = mpi::CheckLevel::full}`, TUTTI_MPI_CHECK_LEVEL=full. An empty variable is none.
struct MpiConfig {
  /// What MPI is asked for where tutti initialises it; mpi::Environment::thread_level() is what it grants.
  mpi::Setting<mpi::ThreadLevel> thread_level = mpi::preset(mpi::ThreadLevel::multiple);
  /// MPI_Pcontrol for the profiler that is linked or preloaded: off 0, on 1, detailed 2; library calls nothing.
  mpi::Setting<mpi::Profiling> profiling = mpi::preset(mpi::Profiling::library);
  /// Variables of the library, set before tutti initialises it; those that the user has set stay. An error where the
  /// application has initialised MPI, because then the library does not look any more.
  mpi::Setting<mpi::Tuning> tuning = mpi::preset(mpi::Tuning());
  /// Whether MPI takes device memory: mpi::cuda_aware(). auto asks the library; on is for libraries that do not know;
  /// off also spares the library's own look at every buffer, and on allows MPICH its own, where tutti initialises it.
  mpi::Setting<mpi::Switch> cuda_aware = mpi::preset(mpi::Switch::automatic);
  /// How ranks wait for each other.
  mpi::Setting<mpi::Wait> wait = mpi::preset(mpi::Wait());
  /// How calls are compared where not all ranks share memory: not at all; while they are under way, so that no result
  /// is handed out before; or before anything is started. On shared memory every call is compared before it touches a
  /// buffer.
  mpi::Setting<mpi::CheckLevel> check_level = mpi::preset(mpi::CheckLevel::cheap);
  /// CommunicatorOptions::deadline_seconds of what launch<Mpi> hands to the program.
  mpi::Setting<double> deadline_seconds = mpi::preset(600.0);
  /// Whether ranks of one node work on each other's memory.
  /// auto: where they can, else with a warning not; on: an error where they cannot.
  mpi::Setting<mpi::Switch> node_shared = mpi::preset(mpi::Switch::automatic);
  /// Divides nodes further, for tests and measurements of what happens between nodes: ranks of the world are on one
  /// node only if they are among the same `node_ranks` consecutive ones. 0: nodes are as MPI_Comm_split_type tells.
  mpi::Setting<mpi::NodeRanks> node_ranks = mpi::preset(mpi::NodeRanks(0));
  /// Of each of a rank's two staging buffers, in shared memory: what private memory passes through on the node, this
  /// much at a time. As much of a device's memory passes through the host at a time.
  mpi::Setting<mpi::BufferSize> staging_bytes = mpi::preset(mpi::BufferSize(256 << 10));
  /// No MPI takes back what it has begun: it may go on with the buffers of a call that failed. What it works on is
  /// therefore a copy where a buffer has at most this many bytes; of a failed call with larger ones the process does
  /// not call MPI again. 0: no copies, and MPI stays usable: the program keeps the buffers of failed calls alive.
  mpi::Setting<mpi::CopyLimit> copy_bytes = mpi::preset(mpi::CopyLimit(4096));
  /// Counts above it take the path for large counts, and so do those above what the library's calls can express. For
  /// tests.
  mpi::Setting<std::int64_t> count_limit = mpi::preset(std::int64_t{INT64_MAX});
  /// Whether the first environment writes the configuration to the error stream of world rank 0.
  mpi::Setting<bool> print_config = mpi::preset(false);

  /// With what the environment says for keys that are not set in code.
  /// Errors   configuration: a value that is not allowed, or a variable TUTTI_MPI_... that is no key.
  MpiConfig resolved() const;
};

namespace mpi {

/// Calls f(name, setting) for every key.
template <class Config, class F>
void for_each_key(Config& config, F&& f) {
  f("thread_level", config.thread_level);
  f("profiling", config.profiling);
  f("tuning", config.tuning);
  f("cuda_aware", config.cuda_aware);
  f("wait", config.wait);
  f("check_level", config.check_level);
  f("deadline_seconds", config.deadline_seconds);
  f("node_shared", config.node_shared);
  f("node_ranks", config.node_ranks);
  f("staging_bytes", config.staging_bytes);
  f("copy_bytes", config.copy_bytes);
  f("count_limit", config.count_limit);
  f("print_config", config.print_config);
}

/// "check_level" is TUTTI_MPI_CHECK_LEVEL.
inline std::string variable_of(std::string_view key) {
  std::string name = "TUTTI_MPI_";
  for (char c : key) name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

}  // namespace mpi

/// One line for each key: its value and where it comes from.
inline std::string to_string(MpiConfig const& config) {
  std::string text;
  mpi::for_each_key(config, [&](char const* name, auto const& setting) {
    text += std::string(name) + " = " + mpi::detail::text_of(setting.get());
    text += setting.source() == mpi::Source::code          ? " (code)\n"
            : setting.source() == mpi::Source::environment ? " (" + mpi::variable_of(name) + ")\n"
                                                           : " (default)\n";
  });
  return text;
}

inline MpiConfig MpiConfig::resolved() const {
  MpiConfig config = *this;
  std::string keys;
  mpi::for_each_key(config, [&]<class T>(char const* name, mpi::Setting<T>& setting) {
    std::string const variable = mpi::variable_of(name);
    keys += (keys.empty() ? "" : ", ") + variable;
    char const* const text = std::getenv(variable.c_str());
    bool const from_code = setting.source() == mpi::Source::code;
    if (!from_code && text != nullptr && *text != 0) {
      T value = setting;
      if (!mpi::detail::parse(text, value) || !mpi::detail::valid(value))
        throw Error(ErrorKind::configuration, "MpiConfig",
                    variable + " is '" + text + "'. " + mpi::detail::allowed(value));
      setting = mpi::Setting<T>(std::move(value), mpi::Source::environment);
    } else if (!mpi::detail::valid(setting.get())) {
      throw Error(ErrorKind::configuration, "MpiConfig",
                  std::string(name) + " is " + mpi::detail::text_of(setting.get()) + ". " +
                      mpi::detail::allowed(setting.get()));
    }
  });
  // A misspelt variable would be without effect and without a word.
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view const line = *entry;
    std::string_view const name = line.substr(0, line.find('='));
    if (name.substr(0, 10) != "TUTTI_MPI_") continue;
    bool known = false;
    mpi::for_each_key(config, [&](char const* key, auto const&) { known = known || mpi::variable_of(key) == name; });
    if (!known)
      throw Error(ErrorKind::configuration, "MpiConfig",
                  std::string(name) + " is no key. There are " + keys);
  }
  return config;
}

}  // namespace tutti
