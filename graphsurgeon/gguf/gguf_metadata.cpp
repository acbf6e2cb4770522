#include "graphsurgeon/gguf/gguf_metadata.h"

namespace pare {
namespace {

enum Kind : std::uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9 };

}  // namespace

void GgufMetadata::put_text(std::string& to, std::string_view text) {
  put(to, static_cast<std::uint64_t>(text.size()));
  to.append(text);
}

void GgufMetadata::key(std::string_view name, std::uint32_t kind) {
  put_text(bytes_, name);
  put(bytes_, kind);
  ++count_;
}

void GgufMetadata::text(std::string_view name, std::string_view value) {
  key(name, kString);
  put_text(bytes_, value);
}

void GgufMetadata::number(std::string_view name, std::uint32_t value) {
  key(name, kUint32);
  put(bytes_, value);
}

void GgufMetadata::number(std::string_view name, float value) {
  key(name, kFloat32);
  put(bytes_, value);
}

void GgufMetadata::flag(std::string_view name, bool value) {
  key(name, kBool);
  put(bytes_, static_cast<std::uint8_t>(value ? 1 : 0));
}

void GgufMetadata::texts(std::string_view name, const std::vector<std::string>& values) {
  key(name, kArray);
  put(bytes_, static_cast<std::uint32_t>(kString));
  put(bytes_, static_cast<std::uint64_t>(values.size()));
  for (const std::string& value : values) put_text(bytes_, value);
}

void GgufMetadata::ints(std::string_view name, const std::vector<std::int32_t>& values) {
  key(name, kArray);
  put(bytes_, static_cast<std::uint32_t>(kInt32));
  put(bytes_, static_cast<std::uint64_t>(values.size()));
  for (const std::int32_t value : values) put(bytes_, value);
}

void GgufMetadata::floats(std::string_view name, const std::vector<float>& values) {
  key(name, kArray);
  put(bytes_, static_cast<std::uint32_t>(kFloat32));
  put(bytes_, static_cast<std::uint64_t>(values.size()));
  for (const float value : values) put(bytes_, value);
}

}  // namespace pare
