// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Which ranks of a communicator are on which node.

#include <tutti/backend/mpi/environment.hpp>
#include <tutti/backend/mpi/error.hpp>
#include <tutti/core/list.hpp>

#include <mpi.h>

#include <cstdint>

namespace tutti::mpi {

/// A rank's place. Nodes are counted in the order of their lowest ranks, and so are the ranks of a node.
struct Place {
  int node = 0;
  int local_rank = 0;
};

class Nodes {
 public:
  Nodes() = default;
  /// Collective over `comm`. `most`: see MpiConfig::node_ranks.
  Nodes(MPI_Comm comm, std::int64_t most) {
    int rank = 0;
    int size = 1;
    check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local_), "MPI_Comm_split_type");
    if (most > 0) {
      MPI_Comm whole = local_;
      int world_rank = 0;
      check(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
      check(MPI_Comm_split(whole, world_rank / static_cast<int>(most), rank, &local_), "MPI_Comm_split");
      MPI_Comm_free(&whole);
    }
    Place own;
    check(MPI_Comm_rank(local_, &own.local_rank), "MPI_Comm_rank");
    int const leads = own.local_rank == 0 ? 1 : 0;
    check(MPI_Scan(&leads, &own.node, 1, MPI_INT, MPI_SUM, comm), "MPI_Scan");
    --own.node;
    check(MPI_Bcast(&own.node, 1, MPI_INT, 0, local_), "MPI_Bcast");
    places_.resize(static_cast<std::size_t>(size));
    check(MPI_Allgather(&own, 2, MPI_INT, places_.data(), 2, MPI_INT, comm), "MPI_Allgather");
    own_ = own;
    List<int> sizes;
    for (Place const& place : places_) {
      if (place.local_rank == 0) sizes.push_back(0);
      ++sizes[static_cast<std::size_t>(place.node)];
    }
    count_ = static_cast<int>(sizes.size());
    local_size_ = sizes[static_cast<std::size_t>(own.node)];
    for (int const ranks : sizes) {
      equal_ = equal_ && ranks == local_size_;
      largest_ = ranks > largest_ ? ranks : largest_;
    }
    for (int r = 0; r < size; ++r)
      in_order_ = in_order_ && (r == 0 || place(r).node >= place(r - 1).node);
  }
  Nodes(Nodes const&) = delete;
  Nodes& operator=(Nodes const&) = delete;
  ~Nodes() {
    if (local_ != MPI_COMM_NULL && Environment::usable()) MPI_Comm_free(&local_);
  }

  int count() const noexcept { return count_; }
  Place const& own() const noexcept { return own_; }
  Place const& place(int rank) const noexcept { return places_[static_cast<std::size_t>(rank)]; }
  /// Ranks on this rank's node, and on the one that holds most of them.
  int local_size() const noexcept { return local_size_; }
  int largest() const noexcept { return largest_; }
  /// Whether all nodes hold equally many ranks.
  bool equal() const noexcept { return equal_; }
  /// Whether the ranks of each node follow each other, and so do the nodes.
  bool in_order() const noexcept { return in_order_; }
  /// The ranks of this rank's node, in their order.
  MPI_Comm local() const noexcept { return local_; }

 private:
  MPI_Comm local_ = MPI_COMM_NULL;
  List<Place> places_;
  Place own_;
  int count_ = 1;
  int local_size_ = 1;
  int largest_ = 1;
  bool equal_ = true;
  bool in_order_ = true;
};

}  // namespace tutti::mpi
