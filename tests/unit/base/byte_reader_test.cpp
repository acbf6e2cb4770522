// Bytes leave the cursor only when they are there, also when counts overflow.
#include "engine/base/byte_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace pare {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

template <typename Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ByteReader, TakesInOrder) {
  const std::string data = std::string("\x01\x02\x03\x04\x05\x06", 6) + "text";
  ByteReader reader(bytes_of(data));
  EXPECT_EQ(reader.take_little_endian<std::uint16_t>("a"), 0x0201);
  EXPECT_EQ(reader.take_little_endian<std::uint32_t>("b"), 0x06050403u);
  EXPECT_EQ(reader.take_text(4, "c"), "text");
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(reader.take(0, "nothing").size(), 0u);
  reader.seek(1, "back");
  reader.skip(3, "over");
  EXPECT_EQ(reader.offset(), 4u);
}

TEST(ByteReader, EveryTruncationIsAnError) {
  const std::string data = "12345678";
  for (std::size_t length = 0; length < data.size(); ++length) {
    ByteReader reader(bytes_of(data).first(length));
    EXPECT_EQ(message_of([&] { reader.take_little_endian<double>("weight"); }),
              fmt::format("weight needs 8 bytes at offset 0, but only {} are left", length));
    EXPECT_EQ(reader.offset(), 0u);  // a failed call takes nothing
  }
}

TEST(ByteReader, CountsThatOverflow) {
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  const std::string data = "12345678";
  ByteReader reader(bytes_of(data));
  reader.skip(4, "start");
  EXPECT_NE(message_of([&] { reader.take(kHuge, "a"); }), "nothing was thrown");
  EXPECT_NE(message_of([&] { reader.take(kHuge - 3, "offset + count wraps to 0"); }), "nothing was thrown");
  EXPECT_NE(message_of([&] { reader.seek(9, "past the end"); }), "nothing was thrown");
  EXPECT_NE(message_of([&] { reader.seek(kHuge, "far past the end"); }), "nothing was thrown");
  reader.seek(8, "the end");
  EXPECT_TRUE(reader.at_end());
}

TEST(ByteReader, Limits) {
  check_limit(64, 64, "the rank");
  EXPECT_EQ(message_of([] { check_limit(65, 64, "the rank"); }), "the rank is 65, more than the 64 allowed");
}

}  // namespace
}  // namespace pare
