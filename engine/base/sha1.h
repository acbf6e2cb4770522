// SHA-1 (FIPS 180-4, by libcrypto): only for the checksums that ONNX defines for external data. What pare
// relies on itself is SHA-256.
#pragma once

#include <cstddef>
#include <span>
#include <string>

struct evp_md_ctx_st;  // libcrypto's EVP_MD_CTX

namespace pare {

class Sha1 {
 public:
  Sha1();
  ~Sha1();
  Sha1(const Sha1&) = delete;
  Sha1& operator=(const Sha1&) = delete;

  void update(std::span<const std::byte> bytes);
  std::string finish();  // 40 lower-case digits; once

 private:
  evp_md_ctx_st* context_;
};

}  // namespace pare
