// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a compiler says of a call whose arguments no operation takes: one sentence, where it would list candidates.

namespace tutti::comm {

/// Made of any argument, and of any list in braces, by a conversion that is worse than what the parameters of an
/// operation need. Each operation has an overload that takes these and returns one of the types below: it is called
/// where no other can be, and the type's assertion is the sentence.
struct Any {
  template <class... X>
  Any(X const&...);
};

template <class T>
inline constexpr bool is_taken = false;

// The end of sentences below: assertions take literals alone.
#define TUTTI_PLAIN                                                                                               \
  "Plain are structs whose bytes are their value, without a member that is a pointer, std::pair (name a struct of " \
  "two instead), std::string or container"

// Each has `wait`, so that `comm.broadcast_async(1).wait()` gets no second message.

template <class T>
struct NotBroadcast {
  Any wait(Any = {}) const;
  static_assert(is_taken<T>,
                "tutti: broadcast takes (x, root). x is a buffer, which is a tensor, a view, or contiguous memory of "
                "elements, or one element: a number, std::byte, char, bool, complex number or plain struct. "
                TUTTI_PLAIN);
};
template <class T>
struct NotReduced {
  Any wait(Any = {}) const;
  static_assert(is_taken<T>,
                "tutti: a reduction takes (x, op) or (from, to, op), and reduce the root's rank behind them. These are "
                "buffers: tensors, views, or contiguous memory of elements, which are numbers, std::byte, char, bool, "
                "complex numbers and plain structs. " TUTTI_PLAIN);
};
template <class T>
struct NotMoved {
  Any wait(Any = {}) const;
  static_assert(is_taken<T>,
                "tutti: this takes (x) or (from, to), gather and scatter the root's rank behind them, and scatter "
                "always both. These are buffers: tensors, views, or contiguous memory of elements, which are numbers, "
                "std::byte, char, bool, complex numbers and plain structs. " TUTTI_PLAIN);
};
template <class T>
struct NotRagged {
  Any wait(Any = {}) const;
  static_assert(is_taken<T>,
                "tutti: this takes (from, to, counts), all_to_all_v two lists of counts, or only what the result does "
                "not tell: (x) of gather_v and all_gather_v, (x, counts) of the others. An operator or the root's rank "
                "comes last. Buffers are tensors, views, or contiguous memory of elements, which are numbers, "
                "std::byte, char, bool, complex numbers and plain structs; counts are std::int64_t. " TUTTI_PLAIN);
};
template <class T>
struct NotSent {
  Any wait(Any = {}) const;
  static_assert(is_taken<T>,
                "tutti: send takes (x, to, tag), and x is a buffer: a tensor, a view, or contiguous memory of "
                "elements, which are numbers, std::byte, char, bool, complex numbers and plain structs. " TUTTI_PLAIN);
};
template <class T>
struct NotReceived {
  Any wait(Any = {}) const;
  static_assert(is_taken<T>,
                "tutti: a receive names what comes, recv<T>(from, tag) or recv(x, from, tag), where a matched message "
                "may stand in front for the ranks: elements, which are numbers, std::byte, char, bool, complex numbers "
                "and plain structs, or a buffer of them, which is a tensor, a view, or contiguous memory. "
                TUTTI_PLAIN);
};
template <class T>
struct NotReceivedThere {
  Any wait(Any = {}) const;
  static_assert(is_taken<T>,
                "tutti: what recv<T, D> receives lives on a D, which is a type that models Device, as Cpu does");
};
template <class T>
struct NotExchanged {
  Any wait(Any = {}) const;
  static_assert(is_taken<T>,
                "tutti: send_recv takes (out, to, in, from, tag) or (out, to, from, tag), and the first two are "
                "buffers: tensors, views, or contiguous memory of elements, which are numbers, std::byte, char, bool, "
                "complex numbers and plain structs. " TUTTI_PLAIN);
};

#undef TUTTI_PLAIN

}  // namespace tutti::comm
