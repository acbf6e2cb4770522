#include "engine/base/sha256.h"

#include <openssl/evp.h>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace pare {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr) fail(ErrorCode::kDevice, "out of memory for a SHA-256 state");
  start();
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::start() {
  if (EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) != 1)
    fail(ErrorCode::kDevice, "libcrypto refuses SHA-256 on this machine");
}

void Sha256::update(std::span<const std::byte> bytes) {
  PARE_ASSERT(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
}

void Sha256::update(std::string_view text) {
  update(std::span(reinterpret_cast<const std::byte*>(text.data()), text.size()));
}

void Sha256::update_number(std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  update(bytes);
}

Digest Sha256::finish() {
  Digest digest{};
  PARE_ASSERT(EVP_DigestFinal_ex(context_, digest.data(), nullptr) == 1);
  start();
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Digest sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

std::string hex(const Digest& digest) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Digest digest_from_hex(std::string_view text) {
  const auto value_of = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  Digest digest{};
  bool good = text.size() == 2 * digest.size();
  for (std::size_t i = 0; good && i < digest.size(); ++i) {
    const int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    digest[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  if (!good) fail(ErrorCode::kBadFile, "'{}' is not a SHA-256 of 64 hexadecimal digits", text.substr(0, 80));
  return digest;
}

std::string sha256_of_file(const std::string& path) { return hex(sha256(MappedFile(path).bytes())); }

void DigestSum::add(const Digest& digest) {
  unsigned carry = 0;
  for (std::size_t i = value_.size(); i-- > 0;) {
    carry += static_cast<unsigned>(value_[i]) + digest[i];
    value_[i] = static_cast<std::uint8_t>(carry & 0xFF);
    carry >>= 8;
  }
}

DigestSum DigestSum::from_hex(std::string_view text) {
  DigestSum sum;
  sum.value_ = digest_from_hex(text);
  return sum;
}

}  // namespace pare
