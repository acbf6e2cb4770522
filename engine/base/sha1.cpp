#include "engine/base/sha1.h"

#include <openssl/evp.h>

#include <array>

#include "engine/base/error.h"

namespace pare {

Sha1::Sha1() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr) fail(ErrorCode::kDevice, "out of memory for a SHA-1 state");
  if (EVP_DigestInit_ex(context_, EVP_sha1(), nullptr) == 1) return;
  EVP_MD_CTX_free(context_);
  fail(ErrorCode::kDevice, "libcrypto refuses SHA-1 on this machine");
}

Sha1::~Sha1() { EVP_MD_CTX_free(context_); }

void Sha1::update(std::span<const std::byte> bytes) {
  PARE_ASSERT(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
}

std::string Sha1::finish() {
  std::array<unsigned char, 20> digest{};
  PARE_ASSERT(EVP_DigestFinal_ex(context_, digest.data(), nullptr) == 1);
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace pare
