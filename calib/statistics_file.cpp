// One of the two files that call HDF5's C library; the other is datasets/hdf5_file.cpp.
#include <hdf5.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "calib/statistics.h"
#include "datasets/isolated.h"
#include "engine/base/atomic_file.h"
#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"

namespace pare {

namespace {

constexpr const char* kFormat = "pare statistics";
constexpr std::int64_t kVersion = 1, kVersionChannels = 2;  // the second with histograms a channel
constexpr int kSeconds = 120;                               // of processor time for reading
constexpr std::uint64_t kMaxTensors = 1u << 20;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 36;

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), ErrorCode code, const char* what) : id_(id), close_(close) {
    if (id < 0) fail(code, "HDF5: {} failed", what);
  }
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void expect(bool good, ErrorCode code, const char* what) {
  if (!good) fail(code, "HDF5: {} failed", what);
}

// --- writing: every failure is one of the device

constexpr ErrorCode kWriting = ErrorCode::kDevice;

void write_text_attribute(hid_t file, const char* name, const std::string& text) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, kWriting, name);
  expect(H5Tset_size(type, text.size() + 1) >= 0, kWriting, name);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, kWriting, name);
  const Handle attribute(H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, kWriting,
                         name);
  expect(H5Awrite(attribute, type, text.c_str()) >= 0, kWriting, name);
}

void write_number_attribute(hid_t file, const char* name, std::int64_t number) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, kWriting, name);
  const Handle attribute(H5Acreate2(file, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                         kWriting, name);
  expect(H5Awrite(attribute, H5T_NATIVE_INT64, &number) >= 0, kWriting, name);
}

void write_array(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& dims,
                 const void* data) {
  const Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose,
                     kWriting, name);
  const Handle plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, kWriting, name);
  expect(H5Pset_obj_track_times(plist, false) >= 0, kWriting, name);
  const Handle set(H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT), H5Dclose, kWriting,
                   name);
  hsize_t count = 1;
  for (const hsize_t size : dims) count *= size;
  if (count > 0) expect(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0, kWriting, name);
}

// The tables of the file, as arrays.
struct Tables {
  std::string names;
  std::vector<std::uint64_t> name_ends, counts, histogram, channel_ends;
  std::vector<std::int32_t> exponent;
  std::vector<float> range, channel_amax;
  std::vector<std::uint64_t> hist_ends, hist_counts, hist_bins;  // channels with histograms
  std::vector<std::int32_t> hist_exponent;
  std::vector<float> hist_range;
};

void put_counts(const ValueCounts& s, std::vector<float>& range, std::vector<std::uint64_t>& counts) {
  range.insert(range.end(), {s.min, s.max});
  counts.insert(counts.end(), {s.total, s.zeros, s.nan, s.positive_inf, s.negative_inf});
}

Tables tables_of(const Statistics& statistics) {
  Tables t;
  for (const TensorStats& s : statistics.tensors) {
    t.names += s.name;
    t.name_ends.push_back(t.names.size());
    t.exponent.push_back(s.exponent);
    put_counts(s, t.range, t.counts);
    t.histogram.insert(t.histogram.end(), s.bins.begin(), s.bins.end());
    t.channel_amax.insert(t.channel_amax.end(), s.channel_amax.begin(), s.channel_amax.end());
    t.channel_ends.push_back(t.channel_amax.size());
    for (const ChannelStats& channel : s.channels) {
      t.hist_exponent.push_back(channel.exponent);
      put_counts(channel, t.hist_range, t.hist_counts);
      t.hist_bins.insert(t.hist_bins.end(), channel.bins.begin(), channel.bins.end());
    }
    t.hist_ends.push_back(t.hist_exponent.size());
  }
  return t;
}

// --- reading, in a child process: the tables as bytes, checked for shape only

constexpr ErrorCode kReading = ErrorCode::kBadFile;

std::string read_attribute(hid_t file, const char* name, hid_t memory_type, std::size_t bytes) {
  const Handle attribute(H5Aopen(file, name, H5P_DEFAULT), H5Aclose, kReading, name);
  const Handle space(H5Aget_space(attribute), H5Sclose, kReading, name);
  const Handle type(H5Aget_type(attribute), H5Tclose, kReading, name);
  const bool text = memory_type < 0;
  expect(H5Sget_simple_extent_npoints(space) == 1, kReading, name);
  expect(H5Tget_class(type) == (text ? H5T_STRING : H5T_INTEGER), kReading, name);
  if (text) expect(H5Tis_variable_str(type) == 0 && H5Tget_size(type) <= bytes, kReading, name);
  std::string value(bytes, '\0');
  expect(H5Aread(attribute, text ? static_cast<hid_t>(type) : memory_type, value.data()) >= 0, kReading,
         name);
  if (text) value.resize(std::strlen(value.c_str()));
  return value;
}

struct ArraySpec {
  const char* name;
  int rank;
  std::size_t bytes;
};

void put_bytes(std::string& out, const std::string& bytes) {
  const std::uint64_t length = bytes.size();
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  out += bytes;
}

void read_array(hid_t file, const ArraySpec& spec, hid_t type, std::uint64_t limit, std::string& out) {
  const Handle set(H5Dopen2(file, spec.name, H5P_DEFAULT), H5Dclose, kReading, spec.name);
  const Handle stored(H5Dget_type(set), H5Tclose, kReading, spec.name);
  const Handle space(H5Dget_space(set), H5Sclose, kReading, spec.name);
  hsize_t dims[3] = {1, 1, 1};
  expect(H5Sget_simple_extent_ndims(space) == spec.rank, kReading, spec.name);
  expect(H5Sget_simple_extent_dims(space, dims, nullptr) == spec.rank, kReading, spec.name);
  expect(H5Tequal(stored, type) > 0, kReading, spec.name);
  std::uint64_t bytes = spec.bytes;
  for (int d = 0; d < spec.rank; ++d)
    if (__builtin_mul_overflow(bytes, dims[d], &bytes))
      fail(kReading, "'{}' claims too many elements", spec.name);
  if (bytes > limit) fail(kReading, "'{}' claims {} bytes in a file of {}", spec.name, bytes, limit);
  std::string values(bytes, '\0');
  if (bytes > 0)
    expect(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0, kReading, spec.name);
  put_bytes(out, values);
}

std::string read_file(const std::string& path, std::uint64_t size) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, kReading,
                    "opening the file");
  std::string out;
  for (const char* name : {"format", "graph_hash", "data_hash"})
    put_bytes(out, read_attribute(file, name, -1, 256));
  for (const char* name : {"version", "samples", "bins"})
    out += read_attribute(file, name, H5T_NATIVE_INT64, 8);
  read_array(file, {"names", 1, 1}, H5T_STD_U8LE, size, out);
  read_array(file, {"name_ends", 1, 8}, H5T_STD_U64LE, size, out);
  read_array(file, {"exponent", 1, 4}, H5T_STD_I32LE, size, out);
  read_array(file, {"range", 2, 4}, H5T_IEEE_F32LE, size, out);
  read_array(file, {"counts", 2, 8}, H5T_STD_U64LE, size, out);
  read_array(file, {"histogram", 3, 8}, H5T_STD_U64LE, size, out);
  read_array(file, {"channel_ends", 1, 8}, H5T_STD_U64LE, size, out);
  read_array(file, {"channel_amax", 1, 4}, H5T_IEEE_F32LE, size, out);
  if (H5Lexists(file, "channel_histogram", H5P_DEFAULT) <= 0) return out;
  read_array(file, {"channel_histogram_ends", 1, 8}, H5T_STD_U64LE, size, out);
  read_array(file, {"channel_exponent", 1, 4}, H5T_STD_I32LE, size, out);
  read_array(file, {"channel_range", 2, 4}, H5T_IEEE_F32LE, size, out);
  read_array(file, {"channel_counts", 2, 8}, H5T_STD_U64LE, size, out);
  read_array(file, {"channel_histogram", 3, 8}, H5T_STD_U64LE, size, out);
  return out;
}

// --- and here, where the answer is taken apart and believed only as far as it fits together

template <typename T>
std::vector<T> take_array(ByteReader& reader, const char* what) {
  const auto bytes = reader.take(reader.take_little_endian<std::uint64_t>(what), what);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::string take_text(ByteReader& reader, const char* what) {
  return std::string(reader.take_text(reader.take_little_endian<std::uint64_t>(what), what));
}

// Counts, range, width and bins of a tensor or of one channel.
template <typename Stats>
void check_histogram(const Stats& s, const std::string& name, int bins) {
  const auto wrong = [&](const char* why) {
    fail(ErrorCode::kBadFile, "the statistics of '{}' contradict themselves: {}", name, why);
  };
  std::uint64_t counted = s.nan;
  for (const std::uint64_t more : {s.positive_inf, s.negative_inf, s.zeros})
    if (__builtin_add_overflow(counted, more, &counted)) wrong("counts");
  for (const std::uint64_t more : s.bins)
    if (__builtin_add_overflow(counted, more, &counted)) wrong("counts");
  if (counted != s.total) wrong("the bins do not add up to the total");
  if (!std::isfinite(s.min) || !std::isfinite(s.max) || s.min > s.max ||
      std::signbit(s.min + 0.0f) != (s.min < 0))
    wrong("the range");
  if (s.exponent != width_exponent(s.amax(), bins)) wrong("the width of the bins");
  const double width = std::ldexp(1.0, s.exponent);
  for (int b = 0; b < bins; ++b) {
    if (s.bins[static_cast<std::size_t>(b)] > 0 && b * width > s.max) wrong("a bin above the largest value");
    if (s.bins[static_cast<std::size_t>(b + bins)] > 0 && -b * width < s.min)
      wrong("a bin below the smallest value");
  }
}

void check_tensor(const TensorStats& s) {
  check_histogram(s, s.name, kBins);
  const auto wrong = [&](const char* why) {
    fail(ErrorCode::kBadFile, "the statistics of '{}' contradict themselves: {}", s.name, why);
  };
  for (const float amax : s.channel_amax)
    if (!(amax >= 0 && amax <= s.amax())) wrong("a channel's largest value");
  if (s.channels.empty()) return;
  ValueCounts sum;
  for (const ChannelStats& channel : s.channels) {
    check_histogram(channel, s.name, kChannelBins);
    if (channel.total > s.total || sum.total > s.total) wrong("the values of its channels");
    sum.add(channel);
  }
  if (!(sum == static_cast<const ValueCounts&>(s))) wrong("its channels do not add up to it");
}

ValueCounts take_counts(const float* range, const std::uint64_t* counts) {
  ValueCounts s;
  s.min = range[0];
  s.max = range[1];
  s.total = counts[0];
  s.zeros = counts[1];
  s.nan = counts[2];
  s.positive_inf = counts[3];
  s.negative_inf = counts[4];
  return s;
}

// Version 2 has one more group of tables: a histogram a channel.
std::vector<std::vector<ChannelStats>> take_channels(ByteReader& reader, std::size_t tensors) {
  std::vector<std::vector<ChannelStats>> all(tensors);
  const auto ends = take_array<std::uint64_t>(reader, "channel_histogram_ends");
  const auto exponent = take_array<std::int32_t>(reader, "channel_exponent");
  const auto range = take_array<float>(reader, "channel_range");
  const auto counts = take_array<std::uint64_t>(reader, "channel_counts");
  const auto bins = take_array<std::uint64_t>(reader, "channel_histogram");
  const std::size_t n = exponent.size();
  if (ends.size() != tensors || range.size() != 2 * n || counts.size() != 5 * n ||
      bins.size() != 2 * kChannelBins * n || (tensors > 0 && ends.back() != n) || (tensors == 0 && n > 0))
    fail(ErrorCode::kBadFile, "the tables of channels do not fit together");
  std::size_t c = 0;
  for (std::size_t t = 0; t < tensors; ++t) {
    if (ends[t] < c || ends[t] > n) fail(ErrorCode::kBadFile, "the tables of ends are damaged");
    for (; c < ends[t]; ++c) {
      ChannelStats channel;
      static_cast<ValueCounts&>(channel) = take_counts(&range[2 * c], &counts[5 * c]);
      channel.exponent = exponent[c];
      const auto from = bins.begin() + static_cast<std::ptrdiff_t>(2 * kChannelBins * c);
      channel.bins.assign(from, from + 2 * kChannelBins);
      all[t].push_back(std::move(channel));
    }
  }
  return all;
}

Statistics parse(const std::string& answer) {
  ByteReader reader(std::as_bytes(std::span(answer.data(), answer.size())));
  if (take_text(reader, "format") != kFormat) fail(ErrorCode::kBadFile, "this is no statistics file of pare");
  Statistics statistics;
  statistics.graph_hash = hex(digest_from_hex(take_text(reader, "graph_hash")));
  statistics.data_hash = DigestSum::from_hex(take_text(reader, "data_hash"));
  const auto version = reader.take_little_endian<std::int64_t>("version");
  statistics.samples = reader.take_little_endian<std::int64_t>("samples");
  const auto bins = reader.take_little_endian<std::int64_t>("bins");
  if (version != kVersion && version != kVersionChannels)
    throw make_error(ErrorCode::kUnsupported, "statistics of version {}; this program knows {} and {}",
                     version, kVersion, kVersionChannels)
        .hint("calibrate again");
  if (bins != kBins || statistics.samples < 0) fail(ErrorCode::kBadFile, "samples or bins are impossible");
  const std::string names = take_text(reader, "names");
  const auto name_ends = take_array<std::uint64_t>(reader, "name_ends");
  const auto exponent = take_array<std::int32_t>(reader, "exponent");
  const auto range = take_array<float>(reader, "range");
  const auto counts = take_array<std::uint64_t>(reader, "counts");
  const auto histogram = take_array<std::uint64_t>(reader, "histogram");
  const auto channel_ends = take_array<std::uint64_t>(reader, "channel_ends");
  const auto channel_amax = take_array<float>(reader, "channel_amax");
  const std::size_t n = name_ends.size();
  check_limit(n, kMaxTensors, "the number of tensors");
  if (exponent.size() != n || range.size() != 2 * n || counts.size() != 5 * n ||
      histogram.size() != 2 * kBins * n || channel_ends.size() != n)
    fail(ErrorCode::kBadFile, "the tables differ in their number of tensors");
  std::vector<std::vector<ChannelStats>> channels(n);
  if (version == kVersionChannels) channels = take_channels(reader, n);
  std::uint64_t name_from = 0, channel_from = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (name_ends[i] < name_from || name_ends[i] > names.size() || channel_ends[i] < channel_from ||
        channel_ends[i] > channel_amax.size())
      fail(ErrorCode::kBadFile, "the tables of ends are damaged");
    TensorStats s;
    s.name = names.substr(name_from, name_ends[i] - name_from);
    check_limit(s.name.size(), limits::kMaxNameBytes, "a name's length");
    if (i > 0 && !(statistics.tensors.back().name < s.name))
      fail(ErrorCode::kBadFile, "the names are not sorted");
    s.exponent = exponent[i];
    static_cast<ValueCounts&>(s) = take_counts(&range[2 * i], &counts[5 * i]);
    s.bins.assign(histogram.begin() + static_cast<std::ptrdiff_t>(2 * kBins * i),
                  histogram.begin() + static_cast<std::ptrdiff_t>(2 * kBins * (i + 1)));
    s.channel_amax.assign(channel_amax.begin() + static_cast<std::ptrdiff_t>(channel_from),
                          channel_amax.begin() + static_cast<std::ptrdiff_t>(channel_ends[i]));
    s.channels = std::move(channels[i]);
    check_tensor(s);
    name_from = name_ends[i];
    channel_from = channel_ends[i];
    statistics.tensors.push_back(std::move(s));
  }
  if (name_from != names.size() || channel_from != channel_amax.size())
    fail(ErrorCode::kBadFile, "the tables of ends are damaged");
  return statistics;
}

}  // namespace

void save_statistics(const Statistics& statistics, const std::string& path) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  AtomicFile target(path);
  with_context("writing " + path, [&] {
    const Tables t = tables_of(statistics);
    const hsize_t n = statistics.tensors.size();
    // The newest format without times: equal statistics give equal bytes.
    const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, kWriting, "a property list");
    const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, kWriting, "a property list");
    expect(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) >= 0, kWriting,
           "a property list");
    expect(H5Pset_obj_track_times(creation, false) >= 0, kWriting, "a property list");
    {
      const Handle file(H5Fcreate(target.temporary_path().c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose,
                        kWriting, "creating the file");
      write_text_attribute(file, "format", kFormat);
      const hsize_t channels = t.hist_exponent.size();
      write_number_attribute(file, "version", channels > 0 ? kVersionChannels : kVersion);
      write_text_attribute(file, "graph_hash", statistics.graph_hash);
      write_text_attribute(file, "data_hash", statistics.data_hash.hex());
      write_number_attribute(file, "samples", statistics.samples);
      write_number_attribute(file, "bins", kBins);
      write_array(file, "names", H5T_STD_U8LE, {t.names.size()}, t.names.data());
      write_array(file, "name_ends", H5T_STD_U64LE, {n}, t.name_ends.data());
      write_array(file, "exponent", H5T_STD_I32LE, {n}, t.exponent.data());
      write_array(file, "range", H5T_IEEE_F32LE, {n, 2}, t.range.data());
      write_array(file, "counts", H5T_STD_U64LE, {n, 5}, t.counts.data());
      write_array(file, "histogram", H5T_STD_U64LE, {n, 2, kBins}, t.histogram.data());
      write_array(file, "channel_ends", H5T_STD_U64LE, {n}, t.channel_ends.data());
      write_array(file, "channel_amax", H5T_IEEE_F32LE, {t.channel_amax.size()}, t.channel_amax.data());
      if (channels > 0) {
        write_array(file, "channel_histogram_ends", H5T_STD_U64LE, {n}, t.hist_ends.data());
        write_array(file, "channel_exponent", H5T_STD_I32LE, {channels}, t.hist_exponent.data());
        write_array(file, "channel_range", H5T_IEEE_F32LE, {channels, 2}, t.hist_range.data());
        write_array(file, "channel_counts", H5T_STD_U64LE, {channels, 5}, t.hist_counts.data());
        write_array(file, "channel_histogram", H5T_STD_U64LE, {channels, 2, kChannelBins},
                    t.hist_bins.data());
      }
      expect(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0, kWriting, "writing (is the disk full?)");
    }
  });
  target.commit();
}

Statistics load_statistics(const std::string& path) try {
  return with_context("reading the statistics '" + path + "'", [&] {
    const MappedFile file(path);  // says what is wrong with the path
    const std::uint64_t size = file.bytes().size();
    if (size == 0) fail(ErrorCode::kBadFile, "the file is empty");
    check_limit(size, kMaxBytes, "the file's length");
    return parse(run_isolated("the file", size + 65536, kSeconds, [&] { return read_file(path, size); }));
  });
} catch (Error& error) {
  error.hint("statistics are what `pare calibrate` writes, or statistics.h5 of a run");
  throw;
}

}  // namespace pare
