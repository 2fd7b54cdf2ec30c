{{- /* What pods of servers and of fronts have in common; the role is leader or front. */ -}}

{{- define "offbeat.settings" -}}
- --set=service.certificate="tls/tls.crt"
- --set=service.key="tls/tls.key"
- --set=service.connections_per_address=4000
- --set=store.log={{ .root.Values.log | quote }}
- --set=store.blobs={{ .root.Values.blobs | quote }}
- --set=fronts.leaders=[{{ range $number := until (int .root.Values.servers) }}{{ if $number }}, {{ end }}"{{ $.root.Release.Name }}-{{ $number }}.{{ $.root.Release.Name }}-servers:8444"{{ end }}]
- --set=fronts.ca="internal/ca.pem"
- --set=fronts.certificate="internal/{{ .role }}.pem"
- --set=fronts.key="internal/{{ .role }}.key"
{{- end }}

{{- define "offbeat.container" -}}
image: {{ .root.Values.image }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
volumeMounts:
  - { name: folder, mountPath: /srv/offbeat/server }
  - { name: tmp, mountPath: /tmp }
  - { name: certificate, mountPath: /srv/offbeat/tls, readOnly: true }
  - { name: internal, mountPath: /srv/offbeat/internal, readOnly: true }
{{- end }}

{{- define "offbeat.pod" -}}
automountServiceAccountToken: false
securityContext: { runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001 }
terminationGracePeriodSeconds: 60
{{- end }}

{{- define "offbeat.volumes" -}}
- { name: tmp, emptyDir: {} }
- name: certificate
  secret: { secretName: {{ .Values.secrets.certificate }}, defaultMode: 0440 }
- name: internal
  secret: { secretName: {{ .Values.secrets.internal }}, defaultMode: 0440 }
{{- end }}
