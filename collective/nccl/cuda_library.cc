// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/cuda_library.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/status_macros.h"
#include "collective/nccl/dynamic_library.h"

namespace sheaf {
namespace {

constexpr int kOldestDriver = 11000;  // CUDA 11.0.
constexpr int kPointerMemoryType = 2;
constexpr int kPointerDevice = 9;
constexpr unsigned kHostMemory = 1;

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CudaLibrary>> CudaLibrary::Load(
    const std::vector<std::string>& folders) {
  SHEAF_ASSIGN_OR_RETURN(
      const DynamicLibrary file,
      DynamicLibrary::Find(
          {"CUDA driver", "libcuda.so.1", "SHEAF_CUDA_LIB", NamedLibraries().cuda, folders,
           "CUDA arrays need an NVIDIA GPU and its driver, which brings this library"}));
  auto library = std::make_shared<CudaLibrary>();
  library->path_ = file.path();
  CudaFunctions& functions = library->functions_;
#define SHEAF_LOAD(name)           \
  SHEAF_RETURN_IF_ERROR(file.Load( \
      #name, "the libcuda.so.1 of NVIDIA's driver, of CUDA 11 or later", functions.name))
  SHEAF_LOAD(cuInit);
  SHEAF_LOAD(cuDriverGetVersion);
  SHEAF_LOAD(cuGetErrorName);
  SHEAF_LOAD(cuGetErrorString);
  SHEAF_LOAD(cuDeviceGetCount);
  SHEAF_LOAD(cuDeviceGet);
  SHEAF_LOAD(cuDeviceGetName);
  SHEAF_LOAD(cuDevicePrimaryCtxRetain);
  SHEAF_LOAD(cuDevicePrimaryCtxRelease_v2);
  SHEAF_LOAD(cuCtxPushCurrent_v2);
  SHEAF_LOAD(cuCtxPopCurrent_v2);
  SHEAF_LOAD(cuMemAlloc_v2);
  SHEAF_LOAD(cuMemFree_v2);
  SHEAF_LOAD(cuMemcpyHtoD_v2);
  SHEAF_LOAD(cuMemcpyDtoH_v2);
  SHEAF_LOAD(cuPointerGetAttribute);
  SHEAF_LOAD(cuStreamCreate);
  SHEAF_LOAD(cuStreamDestroy_v2);
  SHEAF_LOAD(cuStreamWaitEvent);
  SHEAF_LOAD(cuEventCreate);
  SHEAF_LOAD(cuEventDestroy_v2);
  SHEAF_LOAD(cuEventRecord);
  SHEAF_LOAD(cuEventQuery);
#undef SHEAF_LOAD
  SHEAF_RETURN_IF_ERROR(library->StatusOf(functions.cuInit(0), "cuInit"));
  SHEAF_RETURN_IF_ERROR(
      library->StatusOf(functions.cuDriverGetVersion(&library->version_), "cuDriverGetVersion"));
  if (library->version_ < kOldestDriver) {
    return absl::FailedPreconditionError(absl::StrCat(
        file.path(), " is a driver of CUDA ", VersionText(library->version_), ": want ",
        VersionText(kOldestDriver), " or later; install a newer NVIDIA driver"));
  }
  SHEAF_RETURN_IF_ERROR(
      library->StatusOf(functions.cuDeviceGetCount(&library->devices_), "cuDeviceGetCount"));
  if (library->devices_ == 0) return library->StatusOf(kCudaNoDevice, "cuDeviceGetCount");
  return library;
}

absl::Status CudaLibrary::StatusOf(int error, const char* call) const {
  if (error == kCudaSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  functions_.cuGetErrorName(error, &name);
  functions_.cuGetErrorString(error, &text);
  const std::string words =
      absl::StrCat(call, ": ", name != nullptr ? name : absl::StrCat("CUDA error ", error), ": ",
                   text != nullptr ? text : "no text");
  switch (error) {
    case kCudaOutOfMemory:
      return absl::ResourceExhaustedError(words);
    case kCudaNoDevice:
      return absl::NotFoundError(absl::StrCat(
          "no GPU: ", words,
          "; CUDA arrays need an NVIDIA GPU (CUDA_VISIBLE_DEVICES may hide those there are)"));
    case 3:    // CUDA_ERROR_NOT_INITIALIZED: of a child that was forked from a user of CUDA, too.
    case 34:   // CUDA_ERROR_STUB_LIBRARY: a toolkit's libcuda, not the driver's.
    case 803:  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    case 804:  // CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
      return absl::FailedPreconditionError(absl::StrCat(path_, ": ", words));
    default:
      return absl::InternalError(words);
  }
}

absl::StatusOr<std::shared_ptr<const CudaDevice>> CudaDevice::Open(
    std::shared_ptr<const CudaLibrary> library, int ordinal) {
  if (ordinal < 0 || ordinal >= library->devices()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no CUDA device ", ordinal, " among ",
                                                   library->devices(),
                                                   " that this process may see"));
  }
  std::shared_ptr<CudaDevice> device(new CudaDevice);
  const CudaLibrary& cuda = *library;
  SHEAF_RETURN_IF_ERROR(cuda.StatusOf(cuda->cuDeviceGet(&device->device_, ordinal), "cuDeviceGet"));
  char name[128] = "";
  SHEAF_RETURN_IF_ERROR(
      cuda.StatusOf(cuda->cuDeviceGetName(name, static_cast<int>(sizeof name), device->device_),
                    "cuDeviceGetName"));
  SHEAF_RETURN_IF_ERROR(
      cuda.StatusOf(cuda->cuDevicePrimaryCtxRetain(&device->context_, device->device_),
                    "cuDevicePrimaryCtxRetain"));
  device->name_ = name;
  device->ordinal_ = ordinal;
  device->library_ = std::move(library);
  return device;
}

CudaDevice::~CudaDevice() {
  if (library_ != nullptr) (*library_)->cuDevicePrimaryCtxRelease_v2(device_);
}

CudaDevice::Current::Current(const CudaDevice& device) : device_(device) {
  (*device_.library_)->cuCtxPushCurrent_v2(device_.context_);
}
CudaDevice::Current::~Current() {
  CudaContext context = nullptr;
  (*device_.library_)->cuCtxPopCurrent_v2(&context);
}

absl::StatusOr<std::shared_ptr<std::byte>> CudaDevice::Allocate(size_t size_bytes) const {
  const Current current(*this);
  CudaPointer pointer = 0;
  SHEAF_RETURN_IF_ERROR(library_->StatusOf(
      (*library_)->cuMemAlloc_v2(&pointer, size_bytes == 0 ? 1 : size_bytes), "cuMemAlloc"));
  return std::shared_ptr<std::byte>(
      reinterpret_cast<std::byte*>(pointer), [device = shared_from_this()](std::byte* address) {
        const Current current(*device);
        (*device->library_)->cuMemFree_v2(reinterpret_cast<CudaPointer>(address));
      });
}

absl::Status CudaDevice::CopyTo(void* device, const void* host, size_t size_bytes) const {
  const Current current(*this);
  return library_->StatusOf(
      (*library_)->cuMemcpyHtoD_v2(reinterpret_cast<CudaPointer>(device), host, size_bytes),
      "cuMemcpyHtoD");
}

absl::Status CudaDevice::CopyFrom(void* host, const void* device, size_t size_bytes) const {
  const Current current(*this);
  return library_->StatusOf(
      (*library_)->cuMemcpyDtoH_v2(host, reinterpret_cast<CudaPointer>(device), size_bytes),
      "cuMemcpyDtoH");
}

absl::Status CudaDevice::CheckPointer(const void* address) const {
  const Current current(*this);
  const auto pointer = reinterpret_cast<CudaPointer>(address);
  unsigned type = 0;
  int device = -1;
  // CUDA knows no host memory but what it was told of: an error means that it is not the device's.
  if ((*library_)->cuPointerGetAttribute(&type, kPointerMemoryType, pointer) != kCudaSuccess ||
      type == kHostMemory) {
    return absl::InvalidArgumentError(
        absl::StrCat("the array lies in host memory: want memory of CUDA device ", ordinal_));
  }
  if ((*library_)->cuPointerGetAttribute(&device, kPointerDevice, pointer) == kCudaSuccess &&
      device != device_) {
    return absl::InvalidArgumentError(absl::StrCat("the array lies on CUDA device ", device,
                                                   ": want memory of device ", ordinal_,
                                                   ", which this rank was formed with"));
  }
  return absl::OkStatus();
}

}  // namespace sheaf
