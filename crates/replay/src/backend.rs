//! The ways to the kernel that a replay may take, behind one face.

use nodrop_io::flood::{FloodSender, Towards};
use nodrop_io::tap::TapSender;
use nodrop_io::tx::{PacketSender, Sent};
use nodrop_io::xdp::XdpSender;

/// The way to the kernel. It reports what became of a frame by the frame's length, perhaps only at a later call.
pub enum Backend {
    /// One send(2) per frame.
    Packet(PacketSender),
    /// A ring shared with the kernel, emptied a batch at a time: of no use if each frame has its time.
    Xdp(Box<XdpSender>),
    /// One write(2) to a tap per frame.
    Tap(TapSender),
    /// Copies made inside the kernel, of one frame after the other.
    Flood(FloodSender),
}

impl Backend {
    /// As it stands in results.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Packet(_) => "af_packet_send",
            Self::Xdp(_) => "af_xdp_copy",
            Self::Tap(_) => "tap_write",
            Self::Flood(flood) => match flood.towards() {
                Towards::Wire => "flood_live_frames",
                Towards::Host => "flood_in_live_frames",
            },
        }
    }

    /// Offers a frame once, now.
    pub(crate) fn send(&mut self, frame: &[u8], report: &mut impl FnMut(usize, Sent)) {
        match self {
            Self::Packet(sender) => report(frame.len(), sender.send(frame)),
            Self::Xdp(sender) => {
                sender.push(frame, report);
                sender.flush(report);
            }
            Self::Tap(sender) => report(frame.len(), sender.send(frame)),
            Self::Flood(sender) => report(frame.len(), sender.send(frame, 1)),
        }
    }

    /// Offers a frame until it is taken, or has found no room for too long.
    pub(crate) fn insist(&mut self, frame: &[u8], report: &mut impl FnMut(usize, Sent)) {
        match self {
            Self::Packet(sender) => sender.push(frame, report),
            Self::Xdp(sender) => sender.push(frame, report),
            Self::Tap(_) | Self::Flood(_) => self.send(frame, report),
        }
    }

    /// Reports the frames that were not reported yet.
    pub(crate) fn finish(&mut self, report: &mut impl FnMut(usize, Sent)) {
        match self {
            Self::Packet(sender) => sender.flush(report),
            Self::Xdp(sender) => sender.flush(report),
            Self::Tap(_) | Self::Flood(_) => {}
        }
    }
}
