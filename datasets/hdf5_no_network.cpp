// In the place of libcurl, which the static HDF5 library asks for to read files from S3 (cmake/hdf5.cmake).
// Nothing of pare does; every function says that it failed. Hidden, so that no library opened later takes
// these for the real ones.
#define PARE_HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace {
constexpr int kFailed = 2;  // CURLE_FAILED_INIT
}

PARE_HIDDEN int curl_global_init(long) { return kFailed; }
PARE_HIDDEN void curl_global_cleanup() {}
PARE_HIDDEN void* curl_easy_init() { return nullptr; }
PARE_HIDDEN int curl_easy_setopt(void*, int, ...) { return kFailed; }
PARE_HIDDEN int curl_easy_perform(void*) { return kFailed; }
PARE_HIDDEN void curl_easy_cleanup(void*) {}
PARE_HIDDEN void* curl_slist_append(void*, const char*) { return nullptr; }
PARE_HIDDEN void curl_slist_free_all(void*) {}
