#include "graphsurgeon/onnx/wire_scan.h"

#include <charconv>
#include <cstdint>

#include "engine/base/error.h"
#include "engine/base/limits.h"

namespace pare {
namespace {

enum class Kind : std::uint8_t { kModel, kGraph, kFunction, kNode, kAttribute, kTensor, kOpaque };

const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {"model", "graph", "function", "node", "attribute", "tensor", "field"};
  return kNames[static_cast<int>(kind)];
}

// Which message stands in field `field` of a message.
Kind child(Kind parent, std::uint64_t field) {
  switch (parent) {
    case Kind::kModel:
      return field == 7 ? Kind::kGraph : field == 25 ? Kind::kFunction : Kind::kOpaque;
    case Kind::kGraph:
      return field == 1 ? Kind::kNode : field == 5 ? Kind::kTensor : Kind::kOpaque;
    case Kind::kFunction:
      return field == 7 ? Kind::kNode : field == 11 ? Kind::kAttribute : Kind::kOpaque;
    case Kind::kNode:
      return field == 5 ? Kind::kAttribute : Kind::kOpaque;
    case Kind::kAttribute:
      if (field == 5 || field == 10) return Kind::kTensor;
      return field == 6 || field == 11 ? Kind::kGraph : Kind::kOpaque;
    default:
      return Kind::kOpaque;
  }
}

bool packed_below_a_byte(std::uint64_t data_type) {  // (U)INT4, FLOAT4E2M1, (U)INT2
  return (data_type >= 21 && data_type <= 23) || data_type == 25 || data_type == 26;
}

// Each subgraph level takes three messages (graph, node, attribute).
constexpr int kMaxDepth = 3 * static_cast<int>(limits::kMaxSubgraphDepth) + 4;

class Scanner {
 public:
  explicit Scanner(std::span<const std::byte> file) : file_(file) {}

  StrippedModel run() {
    message(Kind::kModel, 0, file_.size(), 0);
    return std::move(result_);
  }

 private:
  struct Field {
    std::uint64_t number = 0;
    unsigned wire = 0;
    std::size_t begin = 0;     // of the tag
    std::size_t content = 0;   // behind the tag, and behind the length for wire type 2
    std::size_t end = 0;       // behind the field
    std::uint64_t varint = 0;  // wire type 0
    std::size_t content_size() const { return end - content; }
  };

  std::uint64_t varint(std::size_t& at, std::size_t end, const char* what) const {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at >= end) fail(ErrorCode::kBadFile, "{} is cut short at offset {}", what, at);
      const auto byte = std::to_integer<std::uint64_t>(file_[at++]);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail(ErrorCode::kBadFile, "{} has more than 10 bytes at offset {}", what, at);
  }

  Field field(Kind kind, std::size_t at, std::size_t end) const {
    Field f;
    f.begin = at;
    const std::uint64_t tag = varint(at, end, "a field's tag");
    f.number = tag >> 3;
    f.wire = static_cast<unsigned>(tag & 7);
    if (f.number == 0 || f.number > 0x1FFFFFFF)
      fail(ErrorCode::kBadFile, "no protobuf field has the number {} (in a {}, offset {})", f.number,
           kind_name(kind), f.begin);
    std::uint64_t size = 0;
    switch (f.wire) {
      case 0:
        f.content = at;
        f.varint = varint(at, end, "a number");
        f.end = at;
        return f;
      case 1:
        size = 8;
        break;
      case 2:
        size = varint(at, end, "a length");
        break;
      case 5:
        size = 4;
        break;
      default:
        fail(ErrorCode::kBadFile, "wire type {} of field {} in a {} at offset {} is not used by ONNX", f.wire,
             f.number, kind_name(kind), f.begin);
    }
    if (size > end - at)
      fail(ErrorCode::kBadFile, "field {} of a {} claims {} bytes at offset {}, but only {} are left",
           f.number, kind_name(kind), size, at, end - at);
    f.content = at;
    f.end = at + static_cast<std::size_t>(size);
    return f;
  }

  void append(std::size_t begin, std::size_t end) {
    if (result_.message.size() + (end - begin) > limits::kMaxProtobufBytes)
      fail(ErrorCode::kBadFile, "more than {} bytes beside raw_data, which protobuf cannot parse",
           limits::kMaxProtobufBytes);
    result_.message.append(reinterpret_cast<const char*>(file_.data()) + begin, end - begin);
  }

  // A length of five bytes whatever its value, so that it can be filled in afterwards.
  std::size_t open_length() {
    result_.message.append(5, '\0');
    return result_.message.size();
  }
  void close_length(std::size_t start) {
    std::size_t size = result_.message.size() - start;
    for (int i = 0; i < 5; ++i, size >>= 7)
      result_.message[start - 5 + static_cast<std::size_t>(i)] =
          static_cast<char>((size & 0x7F) | (i < 4 ? 0x80u : 0u));
  }

  void message(Kind kind, std::size_t at, std::size_t end, int depth) {
    if (depth > kMaxDepth)
      fail(ErrorCode::kBadFile, "subgraphs are nested more than {} deep", limits::kMaxSubgraphDepth);
    if (kind == Kind::kTensor) return tensor(at, end);
    while (at < end) {
      const Field f = field(kind, at, end);
      at = f.end;
      const Kind inner = f.wire == 2 ? child(kind, f.number) : Kind::kOpaque;
      if (inner == Kind::kOpaque) {
        append(f.begin, f.end);
        continue;
      }
      if (inner == Kind::kNode && ++nodes_ > limits::kMaxNodes)
        fail(ErrorCode::kBadFile, "more than {} nodes", limits::kMaxNodes);
      append_tag(f.number);
      const std::size_t start = open_length();
      if (kind == Kind::kModel) in_function_ = inner == Kind::kFunction;
      message(inner, f.content, f.end, depth + 1);
      close_length(start);
    }
  }

  void append_tag(std::uint64_t number) {  // wire type 2
    for (std::uint64_t tag = number << 3 | 2;; tag >>= 7) {
      if (tag < 0x80) {
        result_.message.push_back(static_cast<char>(tag));
        return;
      }
      result_.message.push_back(static_cast<char>((tag & 0x7F) | 0x80));
    }
  }

  void append_bytes(std::uint64_t number, std::string_view bytes) {
    append_tag(number);
    const std::size_t start = open_length();
    result_.message.append(bytes);
    close_length(start);
  }

  void tensor(std::size_t at, std::size_t end) {
    Field raw;  // the last one counts, as for protobuf
    std::uint64_t data_type = 0;
    while (at < end) {
      const Field f = field(Kind::kTensor, at, end);
      at = f.end;
      if (f.wire == 2 && f.number == 9)
        raw = f;
      else if (f.wire == 2 && f.number == 12)
        continue;
      else
        append(f.begin, f.end);
      if (f.wire == 0 && f.number == 2) data_type = f.varint;
    }
    if (raw.number == 0) return;
    if (raw.content_size() <= kInlineBytes || (in_function_ && packed_below_a_byte(data_type)))
      return append(raw.begin, raw.end);
    append_bytes(9, std::string_view("\0", 1));
    append_bytes(12, std::to_string(result_.payloads.size()));
    result_.payloads.push_back(file_.subspan(raw.content, raw.content_size()));
  }

  std::span<const std::byte> file_;
  StrippedModel result_;
  std::size_t nodes_ = 0;
  bool in_function_ = false;
};

}  // namespace

StrippedModel strip_payloads(std::span<const std::byte> file) { return Scanner(file).run(); }

int payload_number(std::string_view doc_string) {
  int number = -1;
  const char* end = doc_string.data() + doc_string.size();
  const auto parsed = std::from_chars(doc_string.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end && number >= 0 ? number : -1;
}

}  // namespace pare
