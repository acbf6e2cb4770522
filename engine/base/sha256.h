// SHA-256 (FIPS 180-4, by libcrypto), and sums of digests that do not depend on order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // libcrypto's EVP_MD_CTX

namespace pare {

using Digest = std::array<std::uint8_t, 32>;  // in the order in which SHA-256 prints it

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  void update_number(std::uint64_t value);  // 8 bytes, little-endian: lengths between variable parts
  Digest finish();                          // once; then the object starts afresh

 private:
  void start();
  evp_md_ctx_st* context_;
};

Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);
std::string hex(const Digest& digest);                // 64 lower-case digits
Digest digest_from_hex(std::string_view text);        // Error kBadFile unless 64 hexadecimal digits
std::string sha256_of_file(const std::string& path);  // hex; errors of MappedFile

// The sum of digests modulo 2^256, each read as a big-endian number. The same for any order and any
// partition of the samples, so the sums of two halves add up to the sum of the whole.
class DigestSum {
 public:
  void add(const Digest& digest);
  void add(const DigestSum& other) { add(other.value_); }
  const Digest& value() const { return value_; }  // big-endian; all zero for no samples
  std::string hex() const { return pare::hex(value_); }
  static DigestSum from_hex(std::string_view text);

  friend bool operator==(const DigestSum&, const DigestSum&) = default;

 private:
  Digest value_{};
};

}  // namespace pare
