#include "graphsurgeon/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/reader_hints.h"
#include "engine/numeric/table.h"

namespace pare {
namespace {

constexpr ReaderHints kHints = {
    "the file is not whole, damaged, or no safetensors file: compare its size with that of the source, and "
    "download it again",
    "convert the tensor to a type that safetensors files have"};

DType dtype_of(const std::string& text, const std::string& where) {
  if (text == "BOOL") return DType::kBool;
  int count = 0;
  const FormatInfo* rows = formats(count);
  for (int i = 0; i < count; ++i)
    if (rows[i].safetensors != nullptr && text == rows[i].safetensors) return rows[i].dtype;
  std::string known = "BOOL";
  for (int i = 0; i < count; ++i)
    if (rows[i].safetensors != nullptr && rows[i].safetensors != std::string_view("BOOL"))
      known += std::string(", ") + rows[i].safetensors;
  throw make_error(ErrorCode::kUnsupported, "the type {} is not known", text)
      .at(where)
      .hint("known are " + known);
}

struct Extent {
  std::uint64_t begin, end;
  std::string name;
  bool operator<(const Extent& other) const {
    return std::pair(begin, end) < std::pair(other.begin, other.end);
  }
};

std::uint64_t offset_of(const Json& value, const std::string& where) {
  if (!value.is_number_integer() ||
      (value.is_number_integer() && !value.is_number_unsigned() && value.get<std::int64_t>() < 0))
    throw make_error(ErrorCode::kBadFile, "an offset is no number").at(where);
  return value.get<std::uint64_t>();
}

SafetensorsFile parse(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                      const std::string& path) {
  const auto place = [&](const std::string& tensor) { return path + ": tensor '" + tensor + "'"; };
  const auto bad = [&](const std::string& what, const std::string& tensor = "") {
    return make_error(ErrorCode::kBadFile, "{}", what).at(tensor.empty() ? path : place(tensor));
  };
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) throw bad("the file is too short for a safetensors header");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - sizeof length)
    throw bad(fmt::format("the header is longer than the file: {} bytes, of {}", length, bytes.size()));
  if (length > limits::kMaxSafetensorsHeaderBytes)
    throw bad(fmt::format("the header has {} bytes, and {} are allowed", length,
                          limits::kMaxSafetensorsHeaderBytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length,
                              static_cast<std::size_t>(length));
  const Json header = parse_json(text, path);
  if (!header.is_object()) throw bad("the header is no JSON object");
  const std::span<const std::byte> data = bytes.subspan(sizeof length + static_cast<std::size_t>(length));
  SafetensorsFile result;
  std::map<std::string, Tensor>& tensors = result.tensors;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) throw bad("__metadata__ is no JSON object");
      for (const auto& [key, said] : entry.items())
        if (said.is_string()) result.metadata[key] = said.get<std::string>();
      continue;
    }
    check_limit(name.size(), limits::kMaxNameBytes, "the length of a tensor's name");
    const DType type = dtype_of(json_string(entry, "dtype", path), place(name));
    Dims dims;
    check_limit(json_array(entry, "shape", path).size(), limits::kMaxRank,
                "the rank of tensor '" + name + "'");
    for (const Json& size : json_array(entry, "shape", path))
      dims.push_back(
          static_cast<std::int64_t>(std::min<std::uint64_t>(offset_of(size, place(name)), INT64_MAX)));
    const Json& offsets = json_array(entry, "data_offsets", path);
    if (offsets.size() != 2) throw bad("data_offsets is not two numbers", name);
    const std::uint64_t begin = offset_of(offsets[0], place(name)), end = offset_of(offsets[1], place(name));
    if (begin > end || end > data.size())
      throw bad(fmt::format("its bytes lie outside the file: to {} of {}", end, data.size()), name);
    if (static_cast<std::uint64_t>(byte_count(type, dims)) != end - begin)
      throw bad(fmt::format("{} {} takes {} bytes, the offsets say {}", pare::name(type), to_string(dims),
                            byte_count(type, dims), end - begin),
                name);
    extents.push_back({begin, end, name});
    const std::byte* first = data.data() + begin;
    const std::uintptr_t element = std::max(1, bits(type) / 8);
    const bool aligned = reinterpret_cast<std::uintptr_t>(first) % element == 0;
    const Tensor mapped = Tensor::share(type, dims, first, owner);
    tensors[name] = aligned ? mapped : mapped.clone();
  }
  std::sort(extents.begin(), extents.end());
  std::uint64_t at = 0;
  std::string before;
  for (const Extent& extent : extents) {
    if (extent.begin != at)
      throw bad(extent.begin < at ? fmt::format("its bytes overlap those of tensor '{}'", before)
                                  : std::string("bytes before it belong to no tensor"),
                extent.name);
    at = extent.end;
    before = extent.name;
  }
  if (at != data.size()) throw bad("bytes at the end belong to no tensor");
  return result;
}

}  // namespace

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                  const std::string& path) try {
  return with_hints(kHints, [&] { return parse(bytes, owner, path); });
} catch (Error& error) {
  error.at(path);
  throw;
}

SafetensorsFile open_safetensors(const std::string& path) {
  const MappedFile file(path);
  return parse_safetensors(file.bytes(), file.owner(), path);
}

std::map<std::string, Tensor> read_safetensors(const std::string& path) {
  return open_safetensors(path).tensors;
}

}  // namespace pare
