// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/faulty_vfs.h"

#include <sqlite3.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>

namespace sheaf {

struct FaultyVfs::State {
  sqlite3_vfs vfs{};
  sqlite3_vfs* real = nullptr;
  mutable std::mutex mutex;
  int64_t room = -1;  // Bytes by which files may still grow; < 0: any.
  int fail_sync = 0;  // Syncs until the failing one; 0: none fails.
  int syncs = 0;
  std::map<std::string, std::optional<std::string>> synced;  // By path; nullopt: not there.
};

namespace {

std::optional<std::string> Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

struct File {
  sqlite3_file base;  // First: SQLite sees only this.
  FaultyVfs::State* state;
  std::string* path;
  sqlite3_file* real;
};

File* Self(sqlite3_file* file) { return reinterpret_cast<File*>(file); }
sqlite3_file* Real(sqlite3_file* file) { return Self(file)->real; }

int Close(sqlite3_file* file) {
  const int code = Real(file)->pMethods->xClose(Real(file));
  delete Self(file)->path;
  return code;
}
int Read(sqlite3_file* file, void* to, int size, sqlite3_int64 offset) {
  return Real(file)->pMethods->xRead(Real(file), to, size, offset);
}
int WriteAt(sqlite3_file* file, const void* from, int size, sqlite3_int64 offset) {
  sqlite3_int64 length = 0;
  Real(file)->pMethods->xFileSize(Real(file), &length);
  const int64_t growth = offset + size - length;
  {
    std::lock_guard lock(Self(file)->state->mutex);
    int64_t& room = Self(file)->state->room;
    if (room >= 0 && growth > 0) {
      if (growth > room) return SQLITE_FULL;
      room -= growth;
    }
  }
  return Real(file)->pMethods->xWrite(Real(file), from, size, offset);
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  return Real(file)->pMethods->xTruncate(Real(file), size);
}
int Sync(sqlite3_file* file, int flags) {
  std::lock_guard lock(Self(file)->state->mutex);
  FaultyVfs::State& state = *Self(file)->state;
  ++state.syncs;
  if (state.fail_sync > 0 && --state.fail_sync == 0) return SQLITE_IOERR_FSYNC;
  const int code = Real(file)->pMethods->xSync(Real(file), flags);
  if (code == SQLITE_OK) state.synced[*Self(file)->path] = Contents(*Self(file)->path);
  return code;
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Real(file)->pMethods->xFileSize(Real(file), size);
}
int Lock(sqlite3_file* file, int level) { return Real(file)->pMethods->xLock(Real(file), level); }
int Unlock(sqlite3_file* file, int level) {
  return Real(file)->pMethods->xUnlock(Real(file), level);
}
int CheckReserved(sqlite3_file* file, int* out) {
  return Real(file)->pMethods->xCheckReservedLock(Real(file), out);
}
int FileControl(sqlite3_file* file, int op, void* arg) {
  return Real(file)->pMethods->xFileControl(Real(file), op, arg);
}
int SectorSize(sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); }
int Characteristics(sqlite3_file* file) {
  return Real(file)->pMethods->xDeviceCharacteristics(Real(file));
}

// Version 1: no shared memory, which exclusive locking does not need, and no mmap.
const sqlite3_io_methods kMethods = {
    1,       Close,         Read,        WriteAt,    Truncate,        Sync,    FileSize, Lock,
    Unlock,  CheckReserved, FileControl, SectorSize, Characteristics, nullptr, nullptr,  nullptr,
    nullptr, nullptr,       nullptr};

FaultyVfs::State* StateOf(sqlite3_vfs* vfs) {
  return static_cast<FaultyVfs::State*>(vfs->pAppData);
}

int OpenFile(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  FaultyVfs::State* state = StateOf(vfs);
  File* self = new (file) File{};
  self->real = reinterpret_cast<sqlite3_file*>(self + 1);
  self->state = state;
  const std::string path = name == nullptr ? "" : name;
  {
    std::lock_guard lock(state->mutex);
    state->synced.try_emplace(path, Contents(path));
  }
  const int code = state->real->xOpen(state->real, name, self->real, flags, out_flags);
  if (code != SQLITE_OK) return code;
  self->path = new std::string(path);
  self->base.pMethods = &kMethods;
  return SQLITE_OK;
}
int DeleteFile(sqlite3_vfs* vfs, const char* name, int sync_directory) {
  FaultyVfs::State* state = StateOf(vfs);
  const int code = state->real->xDelete(state->real, name, sync_directory);
  std::lock_guard lock(state->mutex);
  if (code == SQLITE_OK) state->synced[name] = std::nullopt;
  return code;
}

}  // namespace

FaultyVfs::FaultyVfs() : state_(std::make_unique<State>()) {
  state_->real = sqlite3_vfs_find(nullptr);
  state_->vfs = *state_->real;
  state_->vfs.szOsFile = static_cast<int>(sizeof(File)) + state_->real->szOsFile;
  state_->vfs.pNext = nullptr;
  state_->vfs.zName = kName;
  state_->vfs.pAppData = state_.get();
  state_->vfs.xOpen = OpenFile;
  state_->vfs.xDelete = DeleteFile;
  // The others may find the real layer's data in the vfs they are given.
  state_->vfs.xAccess = [](sqlite3_vfs* vfs, const char* name, int flags, int* out) {
    sqlite3_vfs* real = StateOf(vfs)->real;
    return real->xAccess(real, name, flags, out);
  };
  state_->vfs.xFullPathname = [](sqlite3_vfs* vfs, const char* name, int size, char* out) {
    sqlite3_vfs* real = StateOf(vfs)->real;
    return real->xFullPathname(real, name, size, out);
  };
  sqlite3_vfs_register(&state_->vfs, 0);
}

FaultyVfs::~FaultyVfs() { sqlite3_vfs_unregister(&state_->vfs); }

void FaultyVfs::FillDiskAfter(int64_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->room = bytes;
}

void FaultyVfs::FailSync(int count) {
  std::lock_guard lock(state_->mutex);
  state_->fail_sync = count;
}

void FaultyVfs::LosePower() {
  std::lock_guard lock(state_->mutex);
  for (const auto& [path, contents] : state_->synced) {
    if (!contents) {
      std::filesystem::remove(path);
    } else {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << *contents;
    }
  }
}

int FaultyVfs::syncs() const {
  std::lock_guard lock(state_->mutex);
  return state_->syncs;
}

}  // namespace sheaf
