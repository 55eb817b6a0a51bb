package main

import (
	"context"
	"os"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// XFS, which grows without a right that sandboxes lack, is never smaller.
const sizeLeast = 304 << 20

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	reply := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		rpc := &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}}
		reply.Capabilities = append(reply.Capabilities, &csi.ControllerServiceCapability{Type: rpc})
	}
	return reply, nil
}

func (d *driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	size := max(request.GetCapacityRange().GetRequiredBytes(), sizeLeast)
	file := d.file(request.Name)
	if _, err := os.Stat(file); err != nil {
		if err := d.fill(file, request.VolumeContentSource, size); err != nil {
			os.Remove(file)
			return nil, err
		}
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: request.Name, CapacityBytes: size, ContentSource: request.VolumeContentSource,
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{topology: d.node}}},
	}}, nil
}

// A copy of the source, or zeros.
func (d *driver) fill(file string, source *csi.VolumeContentSource, size int64) error {
	from := source.GetSnapshot().GetSnapshotId() + source.GetVolume().GetVolumeId()
	if from != "" {
		if err := d.copy(from, file); err != nil {
			return err
		}
	}
	handle, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer handle.Close()
	if info, err := handle.Stat(); err != nil || info.Size() >= size {
		return err
	}
	return handle.Truncate(size)
}

func (d *driver) copy(id, to string) error {
	if _, err := os.Stat(d.file(id)); err != nil {
		return status.Errorf(codes.NotFound, "%s is not there", id)
	}
	if _, err := run("sync"); err != nil {
		return err
	}
	_, err := run("cp", "--sparse=always", d.file(id), to)
	return err
}

func (d *driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	// What a kubelet gave back while a container still had it.
	for _, device := range d.devices(request.VolumeId) {
		run("losetup", "--detach", device)
	}
	return &csi.DeleteVolumeResponse{}, os.RemoveAll(d.file(request.VolumeId))
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	confirmed := &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: request.VolumeCapabilities}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: confirmed}, nil
}

func (d *driver) CreateSnapshot(_ context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	file := d.file(request.Name)
	if _, err := os.Stat(file); err != nil {
		if err := d.copy(request.SourceVolumeId, file); err != nil {
			return nil, err
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId: request.Name, SourceVolumeId: request.SourceVolumeId, SizeBytes: info.Size(), ReadyToUse: true,
		CreationTime: timestamppb.New(info.ModTime()),
	}}, nil
}

func (d *driver) DeleteSnapshot(_ context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	return &csi.DeleteSnapshotResponse{}, os.RemoveAll(d.file(request.SnapshotId))
}

func (d *driver) ControllerExpandVolume(_ context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	size := request.GetCapacityRange().GetRequiredBytes()
	info, err := os.Stat(d.file(request.VolumeId))
	if err == nil && info.Size() < size {
		err = os.Truncate(d.file(request.VolumeId), size)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, err
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: &csi.Topology{Segments: map[string]string{topology: d.node}}}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	rpc := &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_EXPAND_VOLUME}}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: rpc}}}, nil
}

func (d *driver) devices(id string) []string {
	out, _ := run("losetup", "--noheadings", "--output", "NAME", "--associated", d.file(id))
	return strings.Fields(out)
}

// The loop device of a volume, made when there is none.
func (d *driver) device(id string) (string, error) {
	if devices := d.devices(id); len(devices) > 0 {
		return devices[0], nil
	}
	return run("losetup", "--find", "--show", d.file(id))
}

// Whether something is mounted there, a device file included.
func isMounted(path string) bool {
	_, err := run("findmnt", "--noheadings", "--mountpoint", path)
	return err == nil
}

func (d *driver) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if isMounted(request.TargetPath) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	device, err := d.device(request.VolumeId)
	if err != nil {
		return nil, err
	}
	arguments := []string{device, request.TargetPath}
	if request.VolumeCapability.GetBlock() != nil {
		handle, err := os.OpenFile(request.TargetPath, os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		handle.Close()
		arguments = append([]string{"--bind"}, arguments...)
	} else {
		if _, err := run("blkid", device); err != nil {
			if _, err := run("mkfs.xfs", "-q", device); err != nil {
				return nil, err
			}
		}
		if err := os.MkdirAll(request.TargetPath, 0o750); err != nil {
			return nil, err
		}
		// A copy has the UUID of its source.
		options := "nouuid"
		if request.Readonly {
			options += ",ro"
		}
		arguments = append([]string{"-o", options}, arguments...)
	}
	if _, err := run("mount", arguments...); err != nil {
		return nil, err
	}
	// A copy of a smaller volume has a smaller file system.
	return &csi.NodePublishVolumeResponse{}, d.grow(device, request.VolumeCapability.GetBlock() != nil || request.Readonly)
}

func (d *driver) grow(device string, bare bool) error {
	if _, err := run("losetup", "--set-capacity", device); err != nil || bare {
		return err
	}
	_, err := run("xfs_growfs", device)
	return err
}

func (d *driver) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if isMounted(request.TargetPath) {
		if _, err := run("umount", request.TargetPath); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(request.TargetPath); err != nil {
		return nil, err
	}
	// Kept while another pod has it, and set free with the last.
	for _, device := range d.devices(request.VolumeId) {
		run("losetup", "--detach", device)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (d *driver) NodeExpandVolume(_ context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	device, err := d.device(request.VolumeId)
	if err == nil {
		err = d.grow(device, request.VolumeCapability.GetBlock() != nil)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: request.GetCapacityRange().GetRequiredBytes()}, err
}
