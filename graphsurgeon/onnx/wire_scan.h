// A small scanner of the protobuf wire format: takes the large payloads out of an ONNX file, so that protobuf
// parses (and copies) only the structure and constants become views into the mapped file.
//
// It follows ModelProto -> graph, functions -> nodes -> attributes -> tensors and graphs, and copies every
// field but one: a TensorProto's raw_data longer than kInlineBytes (in a function: not of a type below 8
// bits, whose size the onnx checker looks at) is replaced by one zero byte, and the tensor's doc_string by
// the payload's number. All other doc_strings of these tensors are dropped, so a file cannot forge a number.
//
// Source: https://protobuf.dev/programming-guides/encoding, onnx.proto3 of onnx 1.22.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pare {

struct StrippedModel {
  std::string message;                               // a ModelProto
  std::vector<std::span<const std::byte>> payloads;  // views into the bytes given
};

inline constexpr std::size_t kInlineBytes = 256;  // raw_data up to this stays in the message

// Linear time, one copy of what is not payload. Error kBadFile: lengths beyond the end, bad tags, nesting or
// node counts above engine/base/limits.h, more than 2 GB without the payloads.
StrippedModel strip_payloads(std::span<const std::byte> file);

// The payload number that strip_payloads left in a tensor's doc_string; -1 when there is none.
int payload_number(std::string_view doc_string);

}  // namespace pare
