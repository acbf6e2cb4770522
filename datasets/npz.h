// NumPy's .npz files: a ZIP archive of .npy files, stored or deflated, ZIP64 included.
//
// Stored arrays point into the mapped file; deflated ones are inflated into memory at once. CRC-32 of every
// entry is checked. Refused: encryption, other compressions, archives in several parts, two entries of one
// name, sizes that deflate cannot reach from the bytes that are there.
// Source: PKWARE APPNOTE 6.3.9.
#pragma once

#include <string>
#include <vector>

#include "datasets/source.h"

namespace pare {

// In the order of the archive's directory; names without ".npy". Errors: kBadFile, kUnsupported.
std::vector<NamedTensor> read_npz(const std::string& path);
std::vector<NamedTensor> parse_npz(std::span<const std::byte> file, const std::shared_ptr<const void>& owner,
                                   const std::string& what);

}  // namespace pare
