#include "datasets/npz.h"

#include <zlib.h>

#include <algorithm>
#include <set>

#include "datasets/npy.h"
#include "engine/base/byte_reader.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/reader_hints.h"

namespace pare {

namespace {

constexpr ReaderHints kHints = {"the archive is cut short or damaged: write it again with numpy.savez",
                                "write it with numpy.savez or numpy.savez_compressed"};
constexpr std::uint32_t kEndMagic = 0x06054b50, kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50,
                        kEntryMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr std::uint16_t kStored = 0, kDeflated = 8;
constexpr std::size_t kEndBytes = 22, kLocator64Bytes = 20;
// Deflate's best case: 258 bytes from a little over 2 bits.
constexpr std::uint64_t kMostRatio = 1032;

struct Entry {
  std::string name;
  std::uint16_t method = 0;
  std::uint32_t crc = 0;
  std::uint64_t packed = 0, size = 0, offset = 0;
};

struct Directory {
  std::uint64_t entries = 0, bytes = 0, offset = 0;
};

// The end record stands last, before a comment of at most 65,535 bytes.
std::size_t find_end(std::span<const std::byte> file) {
  if (file.size() < kEndBytes)
    fail(ErrorCode::kBadFile, "a ZIP archive has at least {} bytes, this has {}", kEndBytes, file.size());
  const std::size_t lowest = file.size() - std::min<std::size_t>(file.size(), kEndBytes + 0xFFFF);
  for (std::size_t at = file.size() - kEndBytes + 1; at-- > lowest;) {
    ByteReader reader(file.subspan(at));
    if (reader.take_little_endian<std::uint32_t>("end record") != kEndMagic) continue;
    reader.skip(16, "end record");
    if (reader.take_little_endian<std::uint16_t>("comment length") == reader.left()) return at;
  }
  throw make_error(ErrorCode::kBadFile, "the end of the ZIP archive is missing")
      .hint("the file was cut short, or is no .npz: write it with numpy.savez");
}

Directory read_directory(std::span<const std::byte> file, std::size_t end) {
  ByteReader reader(file.subspan(end));
  reader.skip(4, "end record");
  const auto disk = reader.take_little_endian<std::uint16_t>("disk number");
  const auto first_disk = reader.take_little_endian<std::uint16_t>("disk number");
  Directory directory;
  reader.skip(2, "entry count");
  directory.entries = reader.take_little_endian<std::uint16_t>("entry count");
  directory.bytes = reader.take_little_endian<std::uint32_t>("directory size");
  directory.offset = reader.take_little_endian<std::uint32_t>("directory offset");
  const bool zip64 =
      directory.entries == 0xFFFF || directory.bytes == 0xFFFFFFFF || directory.offset == 0xFFFFFFFF;
  if (zip64 && end >= kLocator64Bytes) {
    ByteReader locator(file.subspan(end - kLocator64Bytes, kLocator64Bytes));
    if (locator.take_little_endian<std::uint32_t>("ZIP64 locator") == kLocator64Magic) {
      locator.skip(4, "disk number");
      ByteReader record(file);
      record.seek(locator.take_little_endian<std::uint64_t>("ZIP64 record offset"), "the ZIP64 end record");
      if (record.take_little_endian<std::uint32_t>("ZIP64 end record") != kEnd64Magic)
        fail(ErrorCode::kBadFile, "the ZIP64 end record is damaged");
      record.skip(8 + 4 + 8 + 8, "ZIP64 end record");
      directory.entries = record.take_little_endian<std::uint64_t>("entry count");
      directory.bytes = record.take_little_endian<std::uint64_t>("directory size");
      directory.offset = record.take_little_endian<std::uint64_t>("directory offset");
    }
  } else if (disk != 0 || first_disk != 0) {
    fail(ErrorCode::kUnsupported, "a ZIP archive in several parts");
  }
  check_limit(directory.entries, limits::kMaxZipEntries, "the number of arrays");
  return directory;
}

// Sizes that do not fit in 32 bits stand in an extra field, those first whose own field is all ones.
void read_zip64_extra(std::span<const std::byte> extra, Entry& entry) {
  ByteReader reader(extra);
  while (reader.left() >= 4) {
    const auto id = reader.take_little_endian<std::uint16_t>("extra field");
    const auto length = reader.take_little_endian<std::uint16_t>("extra field");
    ByteReader field(reader.take(length, "extra field"));
    if (id != 1) continue;
    for (std::uint64_t* number : {&entry.size, &entry.packed, &entry.offset})
      if (*number == 0xFFFFFFFF) *number = field.take_little_endian<std::uint64_t>("ZIP64 size");
    return;
  }
}

Entry read_entry(ByteReader& reader) {
  if (reader.take_little_endian<std::uint32_t>("directory entry") != kEntryMagic)
    fail(ErrorCode::kBadFile, "the directory of the ZIP archive is damaged");
  Entry entry;
  reader.skip(4, "directory entry");
  const auto flags = reader.take_little_endian<std::uint16_t>("flags");
  entry.method = reader.take_little_endian<std::uint16_t>("compression");
  reader.skip(4, "time");
  entry.crc = reader.take_little_endian<std::uint32_t>("CRC");
  entry.packed = reader.take_little_endian<std::uint32_t>("packed size");
  entry.size = reader.take_little_endian<std::uint32_t>("size");
  const auto name_bytes = reader.take_little_endian<std::uint16_t>("name length");
  const auto extra_bytes = reader.take_little_endian<std::uint16_t>("extra length");
  const auto comment_bytes = reader.take_little_endian<std::uint16_t>("comment length");
  reader.skip(8, "directory entry");
  entry.offset = reader.take_little_endian<std::uint32_t>("offset");
  entry.name = reader.take_text(name_bytes, "name");
  read_zip64_extra(reader.take(extra_bytes, "extra fields"), entry);
  reader.skip(comment_bytes, "comment");
  if (flags & 1) fail(ErrorCode::kUnsupported, "'{}' is encrypted", entry.name);
  if (entry.method != kStored && entry.method != kDeflated)
    throw make_error(ErrorCode::kUnsupported, "'{}' is packed by method {}", entry.name, entry.method)
        .hint("write the file with numpy.savez or numpy.savez_compressed");
  return entry;
}

std::span<const std::byte> packed_bytes(std::span<const std::byte> file, const Entry& entry) {
  ByteReader reader(file);
  reader.seek(entry.offset, "the entry");
  if (reader.take_little_endian<std::uint32_t>("local header") != kLocalMagic)
    fail(ErrorCode::kBadFile, "'{}': its header is damaged", entry.name);
  reader.skip(22, "local header");
  const auto name_bytes = reader.take_little_endian<std::uint16_t>("name length");
  const auto extra_bytes = reader.take_little_endian<std::uint16_t>("extra length");
  reader.skip(std::uint64_t{name_bytes} + extra_bytes, "local header");
  return reader.take(entry.packed, "the packed array");
}

std::shared_ptr<std::vector<std::byte>> inflate_entry(std::span<const std::byte> packed, const Entry& entry) {
  check_limit(entry.size, limits::kMaxZipInflated, "the unpacked size");
  if (entry.size / kMostRatio > packed.size() + 16)
    fail(ErrorCode::kBadFile, "'{}' claims {} bytes, which its {} packed bytes cannot hold", entry.name,
         entry.size, packed.size());
  auto bytes = std::make_shared<std::vector<std::byte>>(entry.size);
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail(ErrorCode::kDevice, "zlib does not start");
  // zlib counts in 32 bits; bigger arrays go in pieces.
  constexpr std::size_t kPiece = 1u << 30;
  std::size_t read = 0, written = 0;
  int state = Z_OK;
  while (state == Z_OK) {
    const std::size_t in = std::min(kPiece, packed.size() - read),
                      out = std::min(kPiece, bytes->size() - written);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data())) + read;
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(bytes->data()) + written;
    stream.avail_out = static_cast<uInt>(out);
    state = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    written += out - stream.avail_out;
    if (state == Z_OK && stream.avail_in == in && stream.avail_out == out) break;  // no progress
  }
  inflateEnd(&stream);
  if (state != Z_STREAM_END || written != bytes->size())
    fail(ErrorCode::kBadFile, "'{}' does not unpack to the {} bytes promised", entry.name, entry.size);
  return bytes;
}

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

std::vector<NamedTensor> parse_npz(std::span<const std::byte> file, const std::shared_ptr<const void>& owner,
                                   const std::string& what) {
  return with_context("reading " + what, kHints, [&] {
    const Directory directory = read_directory(file, find_end(file));
    ByteReader reader(file);
    reader.seek(directory.offset, "the archive's directory");
    ByteReader records(reader.take(directory.bytes, "the archive's directory"));
    std::vector<NamedTensor> arrays;
    std::set<std::string> names;
    for (std::uint64_t i = 0; i < directory.entries; ++i) {
      Entry entry = read_entry(records);
      std::string name = entry.name;
      if (name.size() > 4 && name.ends_with(".npy")) name.resize(name.size() - 4);
      if (!names.insert(name).second) fail(ErrorCode::kBadFile, "the array '{}' is there twice", name);
      std::span<const std::byte> bytes = packed_bytes(file, entry);
      std::shared_ptr<const void> keeper = owner;
      if (entry.method == kDeflated) {
        const auto inflated = inflate_entry(bytes, entry);
        bytes = *inflated;
        keeper = inflated;
      } else if (entry.size != entry.packed) {
        fail(ErrorCode::kBadFile, "'{}' is stored, but its two sizes differ", entry.name);
      }
      if (crc_of(bytes) != entry.crc)
        fail(ErrorCode::kBadFile, "'{}' is damaged: its checksum is wrong", entry.name);
      arrays.push_back({name, npy_tensor(bytes, keeper, what + ": " + entry.name)});
    }
    return arrays;
  });
}

std::vector<NamedTensor> read_npz(const std::string& path) {
  const MappedFile file(path);
  return parse_npz(file.bytes(), file.owner(), path);
}

}  // namespace pare
