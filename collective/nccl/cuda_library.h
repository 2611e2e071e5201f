// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// CUDA's driver API, as far as collectives need it: memory, streams and events of one device. It is
// libcuda.so.1, which comes with NVIDIA's driver and with nothing else, so no CUDA toolkit and no
// header of it is needed, to build or to run. What follows from its stable binary interface is
// declared here.
//
// Work is done in the device's primary context, which torch and the CUDA runtime use as well, so
// their arrays and streams can be given.
//
// Errors. kNotFound: no driver, or no GPU. kFailedPrecondition: a driver that cannot be used (a
// missing symbol, too old, or its own words). kResourceExhausted: out of device memory.
// kInternal: another error of CUDA. All name the call and CUDA's own name of the error.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

// CUDA's handles, opaque.
using CudaStream = struct CUstream_st*;  // nullptr: the legacy default stream.
using CudaEvent = struct CUevent_st*;
using CudaContext = struct CUctx_st*;
using CudaPointer = unsigned long long;  // An address in device memory.
static_assert(sizeof(CudaPointer) == sizeof(void*));

// The driver's functions under their exported names.
struct CudaFunctions {
  int (*cuInit)(unsigned flags);
  int (*cuDriverGetVersion)(int* version);
  int (*cuGetErrorName)(int error, const char** name);
  int (*cuGetErrorString)(int error, const char** text);
  int (*cuDeviceGetCount)(int* count);
  int (*cuDeviceGet)(int* device, int ordinal);
  int (*cuDeviceGetName)(char* name, int size, int device);
  int (*cuDevicePrimaryCtxRetain)(CudaContext* context, int device);
  int (*cuDevicePrimaryCtxRelease_v2)(int device);
  int (*cuCtxPushCurrent_v2)(CudaContext context);
  int (*cuCtxPopCurrent_v2)(CudaContext* context);
  int (*cuMemAlloc_v2)(CudaPointer* pointer, size_t bytes);
  int (*cuMemFree_v2)(CudaPointer pointer);
  int (*cuMemcpyHtoD_v2)(CudaPointer to, const void* from, size_t bytes);
  int (*cuMemcpyDtoH_v2)(void* to, CudaPointer from, size_t bytes);
  int (*cuPointerGetAttribute)(void* value, int attribute, CudaPointer pointer);
  int (*cuStreamCreate)(CudaStream* stream, unsigned flags);
  int (*cuStreamDestroy_v2)(CudaStream stream);
  int (*cuStreamWaitEvent)(CudaStream stream, CudaEvent event, unsigned flags);
  int (*cuEventCreate)(CudaEvent* event, unsigned flags);
  int (*cuEventDestroy_v2)(CudaEvent event);
  int (*cuEventRecord)(CudaEvent event, CudaStream stream);
  int (*cuEventQuery)(CudaEvent event);
};

inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaOutOfMemory = 2;
inline constexpr int kCudaNoDevice = 100;
inline constexpr int kCudaNotReady = 600;
inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;

class CudaLibrary {
 public:
  // `folders`: where to look before the system. Loads the driver and starts it (cuInit).
  static absl::StatusOr<std::shared_ptr<const CudaLibrary>> Load(
      const std::vector<std::string>& folders = {});

  const CudaFunctions* operator->() const { return &functions_; }
  const std::string& path() const { return path_; }
  int version() const { return version_; }  // 13000: CUDA 13.0, the newest that the driver knows.
  int devices() const { return devices_; }  // More than 0.
  // OK, or what `error`, which `call` returned, means.
  absl::Status StatusOf(int error, const char* call) const;

 private:
  CudaFunctions functions_{};
  std::string path_;
  int version_ = 0;
  int devices_ = 0;
};

// One device, with its primary context.
class CudaDevice : public std::enable_shared_from_this<CudaDevice> {
 public:
  // kInvalidArgument: there is no device of this number; the message says how many there are.
  static absl::StatusOr<std::shared_ptr<const CudaDevice>> Open(
      std::shared_ptr<const CudaLibrary> library, int ordinal);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // This device is the calling thread's as long as it lives.
  class Current {
   public:
    explicit Current(const CudaDevice& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaDevice& device_;
  };

  const CudaLibrary& library() const { return *library_; }
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }

  // Device memory, aligned to 256 bytes, which keeps this device. kResourceExhausted: no room.
  absl::StatusOr<std::shared_ptr<std::byte>> Allocate(size_t size_bytes) const;
  absl::Status CopyTo(void* device, const void* host, size_t size_bytes) const;
  absl::Status CopyFrom(void* host, const void* device, size_t size_bytes) const;
  // OK: `address` is memory of this device (or managed memory). kInvalidArgument: it is not.
  absl::Status CheckPointer(const void* address) const;

 private:
  CudaDevice() = default;
  std::shared_ptr<const CudaLibrary> library_;
  int ordinal_ = 0;
  int device_ = 0;
  CudaContext context_ = nullptr;
  std::string name_;
};

}  // namespace sheaf
