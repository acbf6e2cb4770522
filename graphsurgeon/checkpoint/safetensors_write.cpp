#include "graphsurgeon/checkpoint/safetensors_write.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/numeric/table.h"

namespace pare {
namespace {

constexpr std::size_t kAlignment = 8;  // of the first tensor

const char* type_name(const StoredTensor& tensor) {
  if (tensor.dtype == DType::kBool) return "BOOL";
  const FormatInfo* info = find_format(tensor.dtype);
  if (info == nullptr || info->safetensors == nullptr || info->bits < 8)
    throw make_error(ErrorCode::kUnsupported, "safetensors files have no type {}", name(tensor.dtype))
        .at(fmt::format("tensor '{}'", tensor.name))
        .hint("leave the tensor out, or convert it to a type of 8 bits or more");
  return info->safetensors;
}

}  // namespace

std::int64_t stored_bytes(const StoredTensor& tensor) { return byte_count(tensor.dtype, tensor.dims); }

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<StoredTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return bits(a->dtype) > bits(b->dtype);
  });
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::uint64_t at = 0;
  for (const StoredTensor* tensor : order) {
    const auto end = at + static_cast<std::uint64_t>(stored_bytes(*tensor));
    header[tensor->name] = {
        {"dtype", type_name(*tensor)}, {"shape", tensor->dims}, {"data_offsets", {at, end}}};
    const bool added = places_.insert({tensor->name, Place{tensor->dtype, tensor->dims, at, false}}).second;
    if (!added) fail(ErrorCode::kBadFile, "there would be two tensors '{}'", tensor->name);
    at = end;
  }
  std::string text = dump(header);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  for (auto& [key, place] : places_) place.offset += sizeof length + length;
  file_.write_at(0, std::as_bytes(std::span(&length, 1)));
  file_.write_at(sizeof length, std::as_bytes(std::span(text.data(), text.size())));
}

void SafetensorsWriter::put(const StoredTensor& tensor) {
  const auto found = places_.find(tensor.name);
  PARE_ASSERT(found != places_.end() && !found->second.written);
  Place& place = found->second;
  PARE_ASSERT(tensor.data.dtype() == place.dtype && tensor.data.dims() == place.dims);
  file_.write_at(place.offset, tensor.data.byte_span());
  place.written = true;
}

void SafetensorsWriter::seal() {
  for (const auto& [key, place] : places_) PARE_ASSERT(place.written);
  file_.seal();
}

void SafetensorsWriter::commit() { file_.commit(); }

}  // namespace pare
