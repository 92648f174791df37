// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Objects of any size as messages: strings, containers, optionals, pairs and tuples, tensors, structs that Boost.Hana
/// describes, and types of one's own, which say once of what they are made, for both directions:
///
///     struct Person { std::string name; std::vector<double> scores; };
///     template <class Archive> void serialize(Archive& archive, Person& p) { archive(p.name, p.scores); }
///
///     send_object(comm, person, 1);                       // on rank 0
///     auto person = recv_object<Person>(comm, 0);         // on rank 1
///     auto everyone = all_gather_objects(comm, person);   // std::vector<Person>
///
/// The hook is what cereal and Boost.Serialization call: a free function or a member `serialize(archive)`, with
/// `archive(a, b)` or `archive & a & b`. Buffers of elements need none of this: pass them to the communicator.
/// Errors     dtype, where bytes hold no T: another type was sent, or they are damaged. Reading is bounded by the bytes
///            that are there. Types are compared by their names, as the compiler spells them.

#include <tutti/comm/communicator.hpp>
#include <tutti/comm/object_parts.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

/// What `serialize` gets where an object becomes bytes.
class ObjectWriter {
 public:
  static constexpr bool is_loading = false;
  template <class... T>
  ObjectWriter& operator()(T const&... parts) {
    (comm::detail::pass(*this, parts), ...);
    return *this;
  }
  template <class T>
  ObjectWriter& operator&(T const& part) {
    return (*this)(part);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

  // For comm::detail::pass.
  template <class T>
  void values(T const* first, std::size_t count) {
    std::size_t const at = bytes_.size();
    bytes_.resize(at + count * static_cast<std::size_t>(comm::wire_bytes<T>()));
    if constexpr (!comm::is_padded<T>) {
      if (count != 0) std::memcpy(bytes_.data() + at, first, count * sizeof(T));
    } else {
      std::byte* to = bytes_.data() + at;
      for (std::size_t i = 0; i < count; ++i) to = comm::pack(first[i], to);
    }
  }
  template <class T>
  void block(T const& container) {
    number(container.size());
    values(container.data(), container.size());
  }
  template <class T>
  void sequence(T const& container) {
    number(container.size());
    for (auto const& element : container) {
      typename comm::detail::Mutable<typename T::value_type>::Type const& part = element;
      (*this)(part);
    }
  }
  template <class T>
  void tensor(Tensor<T, Cpu> const& tensor) {
    number(static_cast<std::uint64_t>(tensor.rank()));
    for (std::int64_t const extent : tensor.shape()) number(static_cast<std::uint64_t>(extent));
    values(tensor.data(), static_cast<std::size_t>(tensor.size()));
  }
  template <class T>
  void optional(T const& object) {
    number(object.has_value() ? 1 : 0);
    if (object.has_value()) (*this)(*object);
  }

 private:
  void number(std::uint64_t value) { values(&value, 1); }
  std::vector<std::byte> bytes_;
};

/// And where bytes become an object.
class ObjectReader {
 public:
  static constexpr bool is_loading = true;
  ObjectReader(std::span<std::byte const> bytes, std::source_location where) : left_(bytes), where_(where) {}
  template <class... T>
  ObjectReader& operator()(T&... parts) {
    (comm::detail::pass(*this, parts), ...);
    return *this;
  }
  template <class T>
  ObjectReader& operator&(T& part) {
    return (*this)(part);
  }
  /// Nothing may be left.
  void finish() const {
    if (!left_.empty()) fail(concat(left_.size(), " bytes are left behind it"));
  }
  [[noreturn]] void fail(std::string const& why) const {
    throw Error(ErrorKind::dtype, "from_bytes",
                concat("these bytes do not hold such an object: ", why, ". Receive it as what was sent"), where_);
  }

  // For comm::detail::pass.
  template <class T>
  void values(T* first, std::size_t count) {
    auto const size = static_cast<std::size_t>(comm::wire_bytes<T>());
    if (count > left_.size() / size) fail(concat("they end after ", left_.size(), " bytes of ", count * size));
    if constexpr (!comm::is_padded<T>) {
      if (count != 0) std::memcpy(static_cast<void*>(first), left_.data(), count * size);
    } else {
      std::byte const* from = left_.data();
      for (std::size_t i = 0; i < count; ++i) from = comm::unpack(from, first[i]);
    }
    left_ = left_.subspan(count * size);
  }
  template <class T>
  void block(T& container) {
    container.resize(count(static_cast<std::size_t>(comm::wire_bytes<typename T::value_type>())));
    values(container.data(), container.size());
  }
  template <class T>
  void sequence(T& container) {
    container.clear();
    for (std::size_t left = count(1); left > 0; --left) {
      typename comm::detail::Mutable<typename T::value_type>::Type element{};
      (*this)(element);
      if constexpr (requires { container.push_back(std::move(element)); }) container.push_back(std::move(element));
      else container.insert(std::move(element));
    }
  }
  template <class T>
  void tensor(Tensor<T, Cpu>& tensor) {
    std::uint64_t const rank = number();
    if (rank > Shape::max_rank) fail(concat("a tensor of ", rank, " axes"));
    std::array<std::int64_t, Shape::max_rank> extents{};
    std::uint64_t size = 1;
    for (std::uint64_t axis = 0; axis < rank; ++axis) {
      std::uint64_t const extent = number();
      if (extent != 0 && size > left_.size() / extent) fail("a tensor larger than they are");
      size *= extent;
      extents[axis] = static_cast<std::int64_t>(extent);
    }
    if (size > left_.size()) fail("a tensor larger than they are");
    tensor = Tensor<T, Cpu>(Shape::of(extents.data(), static_cast<std::int64_t>(rank)));
    values(tensor.data(), static_cast<std::size_t>(tensor.size()));
  }
  template <class T>
  void optional(T& object) {
    object.reset();
    if (number() == 0) return;
    object.emplace();
    (*this)(*object);
  }

 private:
  std::uint64_t number() {
    std::uint64_t value = 0;
    values(&value, 1);
    return value;
  }
  /// Of elements that take at least so many bytes each.
  std::size_t count(std::size_t bytes) {
    std::uint64_t const claimed = number();
    if (claimed > left_.size() / bytes) fail(concat("they claim ", claimed, " elements"));
    return static_cast<std::size_t>(claimed);
  }

  std::span<std::byte const> left_;
  std::source_location where_;
};

template <class T>
std::vector<std::byte> to_bytes(T const& object) {
  ObjectWriter archive;
  archive(comm::detail::type_mark<T>(), object);
  return archive.take();
}
template <class T>
T from_bytes(std::span<std::byte const> bytes, std::source_location where = std::source_location::current()) {
  T object{};
  std::uint64_t mark = 0;
  ObjectReader archive(bytes, where);
  archive(mark);
  if (mark != comm::detail::type_mark<T>()) archive.fail("another type was written");
  archive(object);
  archive.finish();
  return object;
}

template <Backend B, class T>
void send_object(Communicator<B>& comm, T const& object, int to, int tag = 0,
                 CallSite where = std::source_location::current()) {
  comm.send(to_bytes(object), to, tag, where);
}
/// From proc_null: an object as T{} makes it.
template <class T, Backend B>
[[nodiscard]] T recv_object(Communicator<B>& comm, int from = any_source, int tag = any_tag,
                            CallSite where = std::source_location::current()) {
  if (from == proc_null) return T{};
  auto const bytes = recv<std::byte>(comm, from, tag, where);
  return from_bytes<T>(bytes.elements(), where);
}

/// In place, on every rank but the root. Collective, blocks.
template <Backend B, class T>
void broadcast_object(Communicator<B>& comm, T& object, int root = 0,
                      CallSite where = std::source_location::current()) {
  bool const here = comm.rank(where) == root;
  std::vector<std::byte> bytes;
  if (here) bytes = to_bytes(object);
  auto size = static_cast<std::int64_t>(bytes.size());
  comm.broadcast(size, root, where);
  bytes.resize(static_cast<std::size_t>(size));
  comm.broadcast(bytes, root, where);
  if (!here) object = from_bytes<T>(bytes, where);
}
/// At the root one of each rank, in their order; elsewhere none. Collective, blocks.
template <Backend B, class T>
[[nodiscard]] std::vector<T> gather_objects(Communicator<B>& comm, T const& object, int root = 0,
                                            CallSite where = std::source_location::current()) {
  auto const all = comm.gather_v(to_bytes(object), root, where);
  std::vector<T> objects;
  for (int r = 0; r < all.blocks(); ++r) objects.push_back(from_bytes<T>(all.block(r).elements(), where));
  return objects;
}
template <Backend B, class T>
[[nodiscard]] std::vector<T> all_gather_objects(Communicator<B>& comm, T const& object,
                                                CallSite where = std::source_location::current()) {
  auto const all = comm.all_gather_v(to_bytes(object), where);
  std::vector<T> objects;
  for (int r = 0; r < all.blocks(); ++r) objects.push_back(from_bytes<T>(all.block(r).elements(), where));
  return objects;
}

}  // namespace tutti
