// One of the two files that call HDF5's C library; the other is calib/statistics_file.cpp.
#include <hdf5.h>
#include <sys/mman.h>

#include <cstring>

#include "datasets/isolated.h"
#include "datasets/source.h"
#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/reader_hints.h"

namespace pare {

namespace {

constexpr ReaderHints kHints = {"the file is cut short or damaged: write or copy it again",
                                "write plain datasets of numbers: h5py.File(path, 'w')[name] = array"};
constexpr int kSeconds = 600;                   // of processor time for one read
constexpr std::size_t kAnswerBytes = 64 << 20;  // names and shapes of all columns
constexpr std::size_t kMaxColumns = 65536;

// A handle of the library with its own closing function.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id < 0)
      fail(ErrorCode::kBadFile, "HDF5 cannot open {} (damaged, or of a newer version than this library)",
           what);
  }
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

struct TypeRow {
  DType dtype;
  H5T_class_t kind;
  std::size_t bytes;
  bool is_signed;
};
constexpr TypeRow kTypes[] = {{DType::kI8, H5T_INTEGER, 1, true},  {DType::kU8, H5T_INTEGER, 1, false},
                              {DType::kI16, H5T_INTEGER, 2, true}, {DType::kU16, H5T_INTEGER, 2, false},
                              {DType::kI32, H5T_INTEGER, 4, true}, {DType::kU32, H5T_INTEGER, 4, false},
                              {DType::kI64, H5T_INTEGER, 8, true}, {DType::kU64, H5T_INTEGER, 8, false},
                              {DType::kF16, H5T_FLOAT, 2, true},   {DType::kF32, H5T_FLOAT, 4, true},
                              {DType::kF64, H5T_FLOAT, 8, true}};

// The file's type if its bytes are ours as they are (little-endian, IEEE), else kUndefined. Booleans as h5py
// writes them are an enumeration over int8.
DType dtype_of(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  const std::size_t bytes = H5Tget_size(type);
  if (kind == H5T_ENUM && bytes == 1 && H5Tget_nmembers(type) == 2) return DType::kBool;
  if (bytes > 1 && H5Tget_order(type) != H5T_ORDER_LE) return DType::kUndefined;
  for (const TypeRow& row : kTypes) {
    if (row.kind != kind || row.bytes != bytes) continue;
    if (kind == H5T_INTEGER && (H5Tget_sign(type) == H5T_SGN_2) != row.is_signed) continue;
    if (kind == H5T_INTEGER && H5Tget_precision(type) != bytes * 8) continue;
    if (kind == H5T_FLOAT) {
      std::size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
      if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) continue;
      const std::size_t ieee = bytes == 2 ? 10 : bytes == 4 ? 23 : 52;
      if (mantissa_bits != ieee || mantissa != 0 || exponent_bits != bytes * 8 - 1 - ieee) continue;
    }
    return row.dtype;
  }
  return DType::kUndefined;
}

Handle open_file(const std::string& path) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // errors are ours to tell
  return Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "'" + path + "'");
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// In the child: names, types and shapes of all datasets of the root group, in the order of their names.
std::string describe(const std::string& path) {
  const Handle file = open_file(path);
  H5G_info_t info;
  if (H5Gget_info(file, &info) < 0) fail(ErrorCode::kBadFile, "the root group is damaged");
  check_limit(info.nlinks, kMaxColumns, "the number of links");
  std::string out;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    char link[1024];
    const ssize_t length =
        H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, link, sizeof link, H5P_DEFAULT);
    if (length <= 0 || static_cast<std::size_t>(length) >= sizeof link)
      fail(ErrorCode::kBadFile, "link {} is damaged", i);
    H5L_info_t link_info;
    if (H5Lget_info(file, link, &link_info, H5P_DEFAULT) < 0)
      fail(ErrorCode::kBadFile, "link '{}' is damaged", link);
    if (link_info.type != H5L_TYPE_HARD) continue;  // soft and external links lead elsewhere
    const Handle object(H5Oopen(file, link, H5P_DEFAULT), H5Oclose, link);
    if (H5Iget_type(object) != H5I_DATASET) continue;
    const Handle set(H5Dopen2(file, link, H5P_DEFAULT), H5Dclose, link);
    const Handle type(H5Dget_type(set), H5Tclose, link);
    const Handle space(H5Dget_space(set), H5Sclose, link);
    const Handle plist(H5Dget_create_plist(set), H5Pclose, link);
    if (H5Pget_external_count(plist) > 0)
      fail(ErrorCode::kUnsupported, "'{}' is stored in other files", link);
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank < 0 || rank > H5S_MAX_RANK) fail(ErrorCode::kBadFile, "'{}' has no plain shape", link);
    hsize_t dims[H5S_MAX_RANK] = {};
    if (rank > 0 && H5Sget_simple_extent_dims(space, dims, nullptr) != rank)
      fail(ErrorCode::kBadFile, "'{}' has no plain shape", link);
    put(out, static_cast<std::uint64_t>(length));
    out += link;
    put(out, static_cast<std::uint8_t>(dtype_of(type)));
    put(out, static_cast<std::uint64_t>(rank));
    for (int d = 0; d < rank; ++d) put(out, static_cast<std::uint64_t>(dims[d]));
  }
  return out;
}

// In the child: copies rows into memory that is shared with the parent. Runs of rows are read at once.
std::string read_rows(const std::string& path, const Source::Column& column,
                      std::span<const std::int64_t> rows, std::byte* out) {
  const Handle file = open_file(path);
  const Handle set(H5Dopen2(file, column.name.c_str(), H5P_DEFAULT), H5Dclose, column.name);
  const Handle type(H5Dget_type(set), H5Tclose, column.name);
  const Handle space(H5Dget_space(set), H5Sclose, column.name);
  const std::size_t rank = column.sample.size() + 1;
  hsize_t dims[H5S_MAX_RANK] = {};
  if (dtype_of(type) != column.dtype || H5Sget_simple_extent_ndims(space) != static_cast<int>(rank) ||
      H5Sget_simple_extent_dims(space, dims, nullptr) < 0)
    fail(ErrorCode::kBadFile, "'{}' changed while it was read", column.name);
  std::vector<hsize_t> start(rank, 0), count(dims, dims + rank);
  for (std::size_t d = 1; d < rank; ++d)
    if (static_cast<std::int64_t>(dims[d]) != column.sample[d - 1])
      fail(ErrorCode::kBadFile, "'{}' changed while it was read", column.name);
  const auto bytes = static_cast<std::size_t>(byte_count(column.dtype, column.sample));
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t run = 1;
    while (i + run < rows.size() && rows[i + run] == rows[i + run - 1] + 1) ++run;
    start[0] = static_cast<hsize_t>(rows[i]);
    count[0] = run;
    const Handle memory(H5Screate_simple(static_cast<int>(rank), count.data(), nullptr), H5Sclose,
                        column.name);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) < 0 ||
        H5Dread(set, type, memory, space, H5P_DEFAULT, out) < 0)
      throw make_error(ErrorCode::kBadFile, "'{}': samples {} to {} cannot be read", column.name, rows[i],
                       rows[i] + static_cast<std::int64_t>(run) - 1)
          .hint("the file is damaged or cut short, or needs a compression plugin that is not here");
    out += run * bytes;
    i += run;
  }
  return "";
}

// Anonymous memory that a child writes and the parent reads; untouched pages cost nothing.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED)
      throw make_error(ErrorCode::kDevice, "no memory for {} bytes", bytes)
          .hint("a smaller batch needs less memory");
  }
  ~SharedMemory() { munmap(memory_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

class Hdf5Source : public Source {
 public:
  explicit Hdf5Source(const std::string& path) : path_(path) {
    if (MappedFile(path).bytes().empty()) fail(ErrorCode::kBadFile, "'{}' is empty", path);
    const std::string answer =
        run_isolated("'" + path + "'", kAnswerBytes, kSeconds, [&] { return describe(path); });
    ByteReader reader(std::as_bytes(std::span(answer.data(), answer.size())));
    std::string unread;
    while (!reader.at_end()) {
      Column column;
      column.name = reader.take_text(reader.take_little_endian<std::uint64_t>("name"), "name");
      const auto code = reader.take_little_endian<std::uint8_t>("type");
      const auto rank = reader.take_little_endian<std::uint64_t>("rank");
      check_limit(code, kDTypeCount - 1, "type");
      check_limit(rank, H5S_MAX_RANK, "rank");
      column.dtype = static_cast<DType>(code);
      Dims dims;
      for (std::uint64_t d = 0; d < rank; ++d) {
        const auto size = reader.take_little_endian<std::uint64_t>("size");
        check_limit(size, std::uint64_t{1} << 62, "a size");
        dims.push_back(static_cast<std::int64_t>(size));
      }
      if (column.dtype == DType::kUndefined || dims.empty()) {
        unread += (unread.empty() ? "'" : ", '") + column.name + "'";
        continue;
      }
      byte_count(column.dtype, dims);  // representable
      if (columns_.empty()) count_ = dims[0];
      if (dims[0] != count_)
        throw make_error(ErrorCode::kBadFile, "'{}': '{}' has {} samples, but '{}' has {}", path,
                         columns_[0].name, count_, column.name, dims[0])
            .hint("all datasets at the top of the file have the same first dimension");
      column.sample.assign(dims.begin() + 1, dims.end());
      columns_.push_back(std::move(column));
    }
    if (columns_.empty())
      throw make_error(ErrorCode::kUnsupported, "'{}' has no dataset of numbers at its top{}", path,
                       unread.empty() ? "" : " (" + unread + " are of other types)")
          .hint("integers, float16, float32 and float64, little-endian, are read");
  }

  void gather(int column, std::span<const std::int64_t> rows, std::byte* out, ThreadPool*) const override {
    const Column& c = columns_[static_cast<std::size_t>(column)];
    const auto sample = static_cast<std::size_t>(byte_count(c.dtype, c.sample));
    // In pieces, so that the shared memory stays small.
    const std::size_t most =
        std::max<std::size_t>(1, (std::size_t{64} << 20) / std::max<std::size_t>(1, sample));
    for (std::size_t i = 0; i < rows.size(); i += most) {
      const auto piece = rows.subspan(i, std::min(most, rows.size() - i));
      const std::size_t bytes = piece.size() * sample;
      if (bytes == 0) continue;
      const SharedMemory shared(bytes);
      with_hints(kHints, [&] {
        run_isolated("'" + path_ + "'", 0, kSeconds,
                     [&] { return read_rows(path_, c, piece, shared.data()); });
      });
      std::memcpy(out, shared.data(), bytes);
      out += bytes;
    }
  }

 private:
  std::string path_;
};

}  // namespace

std::unique_ptr<Source> hdf5_source(const std::string& path) { return std::make_unique<Hdf5Source>(path); }

}  // namespace pare
