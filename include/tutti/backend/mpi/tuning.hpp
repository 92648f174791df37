// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// `Tuning`: which algorithms the MPI library takes, as the variables that it reads when it is initialised. The
/// collectives of tutti are MPI's non-blocking ones, so these are the variables of those.

#include <tutti/core/list.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace tutti::mpi {

enum class Family : unsigned char { mpich, open_mpi, other };

struct Variable {
  std::string name;
  std::string value;
};

/// "library": what the library chooses. "auto": its algorithms too, and messages that suit the network (eager.hpp); so
/// do "latency", algorithms of few steps for small messages, and "bandwidth", those that send the fewest bytes. Or
/// variables of the library's own, separated by spaces: NAME=VALUE NAME=VALUE.
class Tuning {
 public:
  Tuning() = default;
  Tuning(char const* text) : text_(text) {}
  Tuning(std::string text) : text_(std::move(text)) {}

  std::string const& text() const noexcept { return text_; }
  friend bool operator==(Tuning const& a, Tuning const& b) noexcept { return a.text_ == b.text_; }

  bool keeps_algorithms() const noexcept { return text_ == "auto" || text_ == "library"; }
  bool suits_network() const noexcept { return is_named() && text_ != "library"; }
  bool is_named() const noexcept { return keeps_algorithms() || text_ == "latency" || text_ == "bandwidth"; }
  /// Whether it is one of the names, or a list of variables that an MPI library reads.
  bool valid() const {
    if (is_named()) return true;
    List<Variable> const list = variables(Family::other);
    for (Variable const& variable : list)
      if (reader(variable.name) == Family::other || variable.value.empty()) return false;
    return !list.empty();
  }

  /// The library that reads a variable, told by its prefix.
  static Family reader(std::string_view name) noexcept {
    constexpr std::string_view mpich = "MPIR_CVAR_", open_mpi = "OMPI_MCA_";
    if (name.size() > mpich.size() && name.substr(0, mpich.size()) == mpich) return Family::mpich;
    if (name.size() > open_mpi.size() && name.substr(0, open_mpi.size()) == open_mpi) return Family::open_mpi;
    return Family::other;
  }

  /// What to set for a library.
  List<Variable> variables(Family family) const {
    bool const latency = text_ == "latency";
    if (!is_named()) return listed();
    if (keeps_algorithms() || family == Family::other) return {};
    if (family == Family::mpich)
      return {
          {"MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM",
           latency ? "sched_recursive_doubling" : "sched_reduce_scatter_allgather"},
          {"MPIR_CVAR_IBCAST_INTRA_ALGORITHM", latency ? "sched_binomial" : "sched_scatter_ring_allgather"},
          {"MPIR_CVAR_IREDUCE_INTRA_ALGORITHM", latency ? "sched_binomial" : "sched_reduce_scatter_gather"},
          {"MPIR_CVAR_IALLGATHER_INTRA_ALGORITHM", latency ? "sched_brucks" : "sched_ring"},
      };
    return {
        {"OMPI_MCA_coll_libnbc_iallreduce_algorithm", latency ? "recursive_doubling" : "rabenseifner"},
        {"OMPI_MCA_coll_libnbc_ibcast_algorithm", latency ? "binomial" : "chain"},
        {"OMPI_MCA_coll_libnbc_ireduce_algorithm", latency ? "binomial" : "rabenseifner"},
    };
  }

 private:
  List<Variable> listed() const {
    List<Variable> list;
    std::string_view rest = text_;
    while (!rest.empty()) {
      std::size_t const end = rest.find(' ') == std::string_view::npos ? rest.size() : rest.find(' ');
      std::string_view const word = rest.substr(0, end);
      rest.remove_prefix(end < rest.size() ? end + 1 : end);
      if (word.empty()) continue;
      std::size_t const equals = word.find('=') == std::string_view::npos ? word.size() : word.find('=');
      list.push_back({std::string(word.substr(0, equals)),
                      std::string(equals < word.size() ? word.substr(equals + 1) : std::string_view{})});
    }
    return list;
  }

  std::string text_ = "auto";
};

}  // namespace tutti::mpi
