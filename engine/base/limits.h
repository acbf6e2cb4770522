// Limits for everything that is read from a file, checked before memory is asked for.
//
// They are far above what real models and data have, and far below what would exhaust a machine because a
// damaged header says so. A limit that is hit is Error kBadFile with the limit's value in the message.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pare::limits {

inline constexpr std::size_t kMaxRank = 64;  // dimensions of a tensor

// Text that is parsed as a whole.
inline constexpr std::size_t kMaxRecipeBytes = 4u << 20;    // a YAML recipe or data set file
inline constexpr std::size_t kMaxJsonBytes = 512u << 20;    // a report, a tokenizer, a checkpoint index
inline constexpr std::size_t kMaxJournalBytes = 64u << 20;  // the journal of a run
inline constexpr std::size_t kMaxJsonDepth = 64;            // nested arrays and objects
inline constexpr std::size_t kMaxYamlDepth = 32;            // nested sequences and mappings
inline constexpr std::size_t kMaxTableBytes = 256u << 20;   // a label CSV, a list of files
inline constexpr std::size_t kMaxTextBytes = 1024u << 20;   // one file of text for a language model

// Headers in front of raw data.
inline constexpr std::size_t kMaxNpyHeaderBytes = 1u << 20;            // the Python dict of a .npy
inline constexpr std::size_t kMaxSafetensorsHeaderBytes = 100u << 20;  // as the format's own reader
inline constexpr std::size_t kMaxZipEntries = 65536;                   // arrays in a .npz
inline constexpr std::size_t kMaxZipInflated = std::size_t{16} << 30;  // bytes of one inflated entry

// Models.
inline constexpr std::size_t kMaxProtobufBytes = 0x7FFFFFFF;  // protobuf counts in int32
inline constexpr std::size_t kMaxNodes = 10'000'000;          // nodes of a graph, subgraphs included
inline constexpr std::size_t kMaxSubgraphDepth = 32;          // If, Loop and Scan inside each other
inline constexpr std::size_t kMaxNameBytes = 65536;           // a node's, a value's or a tensor's name

// Images.
inline constexpr std::size_t kMaxImageSide = 65535;             // pixels, either way
inline constexpr std::size_t kMaxImagePixels = 256u << 20;      // of one image
inline constexpr std::size_t kMaxImageFileBytes = 1024u << 20;  // compressed

}  // namespace pare::limits
