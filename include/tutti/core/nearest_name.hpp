// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which known name somebody may have meant.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

/// Insertions, deletions and changes that make one word of another (Levenshtein 1966).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1],
                               std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] == b[j] ? std::size_t{0} : 1)}));
  }
  return row[b.size()];
}

/// The nearest of the names that are tried, of equally near ones the first: at most two changes away, of long names a
/// third of their letters.
class NearestName {
 public:
  explicit NearestName(std::string_view wrong)
      : wrong_(wrong.substr(0, 64)), best_(std::max<std::size_t>(2, wrong_.size() / 3) + 1) {}

  void try_name(std::string_view known) {
    if (std::size_t const distance = edit_distance(wrong_, known); distance < best_) best_ = distance, found_ = known;
  }
  /// ". Did you mean 'NAME'?"; nothing where no name is near.
  std::string question() const { return found_.empty() ? std::string() : ". Did you mean '" + found_ + "'?"; }

 private:
  std::string_view wrong_;
  std::size_t best_;
  std::string found_;
};

}  // namespace tutti
